"""Run the benchmarks: duly beside its peers, interleaved, on a PostgreSQL and SQLite files of their own.

For example:

    python benchmarks/run.py                                  everything, three rounds
    python benchmarks/run.py --only drain-postgres latency    some workloads; 'drain-*' works too
    python benchmarks/run.py --no-peers --rounds 1            duly alone, while working on it
    python benchmarks/run.py --scale 0.05 --rounds 1          a rehearsal: small, its figures mean nothing
"""

import argparse
import os
import signal
import sys
import time
from dataclasses import fields, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import machine
import redis_server
import report
from bench import Bench, Sizes, open_bench
from plots import plot
from results import Outcome
from venvs import UnavailableError
from workloads import WORKLOADS
from workloads.base import Workload


def main() -> int:
    options = _parser().parse_args()
    if options.of:
        return _page_of(options)
    chosen = _choose(options.only)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    outcomes: list[Outcome] = []
    with open_bench(sizes=_sizes(options), programs=options.pg_bin) as bench:
        left_out = _prepare(bench, chosen, peers=options.peers)
        for workload_class in chosen:
            print(f"{workload_class.name} ...", file=sys.stderr, flush=True)
            contenders = [
                one
                for one in workload_class.contenders
                if one.name not in left_out and (options.peers or not one.is_peer)
            ]
            began = time.monotonic()
            outcomes.append(workload_class(bench).run(options.rounds, contenders))
            outcomes[-1].date, outcomes[-1].processor = _today(), machine.processor()
            print(report.terminal(outcomes[-1]), flush=True)
            print(f"({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
            # After each: who stops a run of hours keeps what it has measured.
            _write(outcomes, _setting(bench, options, left_out), options)
    return 1 if any(outcome.failures or not outcome.exactly_once for outcome in outcomes) else 0


def _page_of(options: argparse.Namespace) -> int:
    """Write the page of what earlier runs have measured, and measure nothing."""
    kept = [report.read(path) for path in options.of]
    outcomes = {outcome.name: outcome for outcomes, _ in kept for outcome in outcomes}
    order = [workload.name for workload in WORKLOADS]
    _write(
        sorted(outcomes.values(), key=lambda outcome: order.index(outcome.name)),
        report.together([setting for _, setting in kept]),
        options,
    )
    return 0


def _write(outcomes: list[Outcome], setting: report.Setting, options: argparse.Namespace) -> None:
    if options.json:
        report.write(options.json, report.as_json(outcomes, setting))
    if options.plots:
        for outcome in outcomes:
            if drawn := plot(outcome):
                report.write(options.plots / f"{outcome.name}.svg", drawn)
    if options.markdown:
        plots = os.path.relpath(options.plots, options.markdown.parent) if options.plots else None
        report.write(options.markdown, report.markdown(outcomes, setting, plots))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(workload.name for workload in WORKLOADS)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=["*"], help=f"workloads to run: {names}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiply every count and duration")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N", help="set one count")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="measure duly alone")
    parser.add_argument("--pg-bin", type=_folder, metavar="FOLDER", help="where PostgreSQL's programs are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample and the circumstances")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page for the documentation")
    parser.add_argument(
        "--of", type=Path, nargs="+", metavar="JSON", help="measure nothing: write the page of earlier runs"
    )
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw each workload, as SVG")
    return parser


def _folder(given: str) -> Path:
    folder = Path(given).resolve()
    if not (folder / "initdb").exists():
        raise argparse.ArgumentTypeError(f"{given} has no initdb")
    return folder


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = Sizes().scaled(options.scale)
    known = {size.name for size in fields(Sizes)}
    for given in options.size:
        name, _, number = given.partition("=")
        if name not in known or not number.isdigit():
            sys.exit(f"--size {given}: expected NAME=N with one of {', '.join(sorted(known))}")
        sizes = replace(sizes, **{name: int(number)})
    return sizes


def _choose(patterns: list[str]) -> list[type[Workload]]:
    for pattern in patterns:
        if not any(fnmatch(workload.name, pattern) for workload in WORKLOADS):
            sys.exit(
                f"no workload {pattern!r}; there are: {', '.join(workload.name for workload in WORKLOADS)}"
            )
    return [
        workload for workload in WORKLOADS if any(fnmatch(workload.name, pattern) for pattern in patterns)
    ]


def _prepare(bench: Bench, chosen: list[type[Workload]], *, peers: bool) -> dict[str, str]:
    """Install everything before the first measurement; return who cannot take part here, and why."""
    left_out: dict[str, str] = {}
    for contender in {one.name: one for workload in chosen for one in workload.contenders}.values():
        if contender.is_peer and not peers:
            continue
        try:
            bench.prepare(contender)
        except UnavailableError as error:
            if not contender.is_peer:
                sys.exit(str(error))
            left_out[contender.name] = str(error)
            print(f"left out: {contender.name}: {error}", file=sys.stderr, flush=True)
    return left_out


def _command(options: argparse.Namespace) -> str:
    """The command that makes these figures again, without where its output went."""
    parts = ["python benchmarks/run.py", f"--rounds {options.rounds}"]
    if options.only != ["*"]:
        parts.append(f"--only {' '.join(options.only)}")
    if options.scale != 1:
        parts.append(f"--scale {options.scale:g}")
    parts += [f"--size {given}" for given in options.size]
    if not options.peers:
        parts.append("--no-peers")
    return " ".join(parts)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _setting(bench: Bench, options: argparse.Namespace, left_out: dict[str, str]) -> report.Setting:
    return report.Setting(
        commands=[_command(options)],
        date=_today(),
        rounds=options.rounds,
        scale=options.scale,
        machine=machine.describe(bench.folder),
        postgres=bench.server.version if bench.server_was_used else None,
        redis=redis_server.version(bench.redis_program) if bench.redis_was_used else None,
        statements_are=bench.server.statements_are if bench.server_was_used else "",
        versions=bench.environments.versions(),
        left_out=left_out,
        busy_at_start=bench.busy_at_start,
    )


if __name__ == "__main__":
    sys.exit(main())
