"""Where the time goes in the drain, the enqueue and the idle worker: by function, by statement, by plan.

    python benchmarks/profiles.py                                 a few minutes
    python benchmarks/profiles.py --markdown docs/profiles.md

The worker's Python is sampled by py-spy, statements are counted by pg_stat_statements, plans come from
EXPLAIN ANALYZE. Needs the right to look into other processes (root, or ptrace allowed).
"""

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import machine
import report
from bench import Bench, Database, Sizes, Worker, open_bench
from contenders import DULY_PG, DULY_SQLITE, Contender
from venvs import HERE, environment
from workloads.drain import fill

RATE = 400
"""Samples a second."""
TOP = 22
DRAIN = 3
"""So many times the jobs for a drain: the profiler needs a moment to begin."""
WAITS = {"wait", "select", "sigwait", "readable", "pause", "sleep"}
"""Functions in which a thread only waits, though the profiler may take it for busy."""
LEAF = re.compile(r"^(?P<function>.+) \((?P<file>[^:()]+)(?::\d+)?\)$")


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the samples."""

    name: str
    percent: float


class Samples:
    """Stacks that py-spy saw, with how often."""

    def __init__(self, raw: str) -> None:
        self._stacks: list[tuple[list[str], int]] = []
        for line in raw.splitlines():
            stack, _, count = line.rpartition(" ")
            frames = stack.split(";")
            if len(frames) > 1 and frames[-1].partition(" (")[0].rpartition(".")[2] not in WAITS:
                self._stacks.append((frames, int(count)))
        self.total = sum(count for _, count in self._stacks) or 1

    def threads(self) -> list[Share]:
        """By thread."""
        counted: Counter[str] = Counter()
        for stack, count in self._stacks:
            counted[stack[0].partition(": ")[2].strip('"') or stack[0]] += count
        return self._shares(counted)

    def functions(self) -> list[Share]:
        """By function, only what it does itself."""
        counted: Counter[str] = Counter()
        for stack, count in self._stacks:
            counted[_named(stack[-1])] += count
        return self._shares(counted)[:TOP]

    def _shares(self, counted: Counter[str]) -> list[Share]:
        return [Share(name, 100 * count / self.total) for name, count in counted.most_common()]


def _named(frame: str) -> str:
    found = LEAF.match(frame)
    if found is None:
        return frame
    file = found["file"].replace("\\", "/")
    for mark in ("site-packages/", "/src/", "/lib/"):
        file = file.rpartition(mark)[2]
    return f"{found['function']} ({file})"


def sampled(bench: Bench, *target: str, seconds: float | None = None) -> Samples:
    """Watch a process (`--pid N`), or a command from its start to its end (`-- ...`)."""
    spy = bench.environments.python("py-spy").parent / "py-spy"
    out = bench.folder / "samples.txt"
    command = [str(spy), "record", "--rate", str(RATE), "--format", "raw", "--threads", "--output", str(out)]
    command += ["--duration", str(int(seconds))] if seconds is not None else []
    answer = subprocess.run([*command, *target], capture_output=True, text=True, cwd=HERE, env=environment())
    if not out.exists():
        sys.exit(f"py-spy: {answer.stderr.strip()[-1500:]}")
    samples = Samples(out.read_text())
    out.unlink()
    return samples


def profile_drain(bench: Bench, contender: Contender, jobs: int) -> str:
    """Sample the worker in the middle of a drain; in PostgreSQL, count its statements too."""
    with bench.database(contender) as database:
        fill(bench, contender, database, jobs)
        if database.server is not None:
            database.server.ask("SELECT pg_stat_statements_reset()")
        with bench.worker(contender, database) as worker:
            worker.wait_for_runs(jobs // 10)
            samples = sampled(bench, "--pid", str(worker.pid), seconds=1)
            worker.wait_for_runs(jobs)
        parts = [_by_thread(samples), _by_function(samples)]
        if database.server is not None:
            parts.insert(0, _by_statement(database, jobs))
        return "\n\n".join(parts)


def profile_enqueue(bench: Bench, contender: Contender, jobs: int) -> str:
    """Sample the process that enqueues, one by one and many at once."""
    parts: list[str] = []
    for title, role, count in (("One by one", "one-by-one", jobs // 20), ("Many by one call", "bulk", jobs)):
        with bench.database(contender) as database:
            python = str(bench.environments.python("duly"))
            options = [f"--url={database.url}", "--log=/dev/null", f"--count={count}"]
            command = ["--", python, "-m", "drivers.duly_driver", role, *options]
            parts += [f"### {title}", _by_function(sampled(bench, *command))]
    return "\n\n".join(parts)


def profile_idle(bench: Bench, contenders: Sequence[Contender], seconds: float) -> str:
    """How often an idle worker wakes up, and what it asks."""
    rows = [["worker", "CPU %", "wake-ups/s", "queries/s"]]
    for contender in contenders:
        with bench.database(contender) as database:
            bench.call(contender, "fill", database.url, count=1)
            with bench.worker(contender, database) as worker:
                worker.wait_for_runs(1)
                time.sleep(3)
                before, began = _idle(worker, database), time.monotonic()
                time.sleep(seconds)
                after, took = _idle(worker, database), time.monotonic() - began
        cpu, woken, queries = ((new - old) / took for new, old in zip(after, before, strict=True))
        rows.append([contender.name, f"{cpu * 100:.2f}", f"{woken:.1f}", f"{queries:.2f}"])
    return report.markdown_table(rows)


def _idle(worker: Worker, database: Database) -> tuple[float, float, float]:
    return worker.cpu_seconds(), machine.wake_ups(worker.pid), float(database.queries() or 0)


def plans(bench: Bench, jobs: int) -> str:
    """What EXPLAIN ANALYZE says of the claim and the settle among many jobs."""
    with bench.database(DULY_PG) as database:
        fill(bench, DULY_PG, database, jobs)
        found = bench.call_module("duly", ["drivers.duly_plans", database.url])
    return "\n\n".join(f"### {name}\n\n```\n{plan}\n```" for name, plan in found.items())


def _by_statement(database: Database, jobs: int) -> str:
    assert database.server is not None
    answer = database.server.ask(
        "SELECT calls, round((total_exec_time * 1000)::numeric, 0), rows, shared_blks_hit + shared_blks_read,"
        " wal_bytes, regexp_replace(left(query, 4000), '\\s+', ' ', 'g')"
        " FROM pg_stat_statements s JOIN pg_database d ON s.dbid = d.oid"
        f" WHERE datname = '{database.name}' ORDER BY total_exec_time DESC LIMIT 7"
    )
    rows = [["statement", "calls", "µs/job", "rows/call", "pages/job", "WAL bytes/job"]]
    for line in answer.splitlines():
        calls, us, got, pages, wal, query = line.split("|", 5)
        number = int(calls)
        rows.append(
            [
                f"`{_told(query)}`",
                f"{number:,}",
                f"{float(us) / jobs:.2f}",
                f"{int(got) / number:.0f}",
                f"{int(pages) / jobs:.2f}",
                f"{int(wal) / jobs:.0f}",
            ]
        )
    return report.markdown_table(rows)


STATEMENTS = {"head AS": "claim", ".running r USING": "settle"}


def _told(query: str) -> str:
    """A statement by what it does, where we know it, else by how it begins."""
    short = next((name for mark, name in STATEMENTS.items() if mark in query), None)
    return short or query[:60].replace("|", "/")


def _by_thread(samples: Samples) -> str:
    rows = [["thread", "% of samples"], *([one.name, f"{one.percent:.0f}"] for one in samples.threads()[:8])]
    return report.markdown_table(rows)


def _by_function(samples: Samples) -> str:
    rows = [["function, itself", "% of samples"]]
    return report.markdown_table(
        rows + [[f"`{one.name}`", f"{one.percent:.1f}"] for one in samples.functions()]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page for the documentation")
    options = parser.parse_args()
    with open_bench(sizes=Sizes(), programs=None) as bench:
        parts = [PAGE]
        for title, contender in (("PostgreSQL", DULY_PG), ("SQLite", DULY_SQLITE)):
            print(f"drain, {title} ...", file=sys.stderr, flush=True)
            parts += [f"## The drain, {title}", profile_drain(bench, contender, DRAIN * options.jobs)]
        for title, contender in (("PostgreSQL", DULY_PG), ("SQLite", DULY_SQLITE)):
            print(f"enqueue, {title} ...", file=sys.stderr, flush=True)
            parts += [f"## The enqueue, {title}", profile_enqueue(bench, contender, options.jobs)]
        print("idle ...", file=sys.stderr, flush=True)
        parts += ["## The idle worker", profile_idle(bench, (DULY_PG, DULY_SQLITE), 20)]
        parts += ["## Plans", plans(bench, options.jobs)]
    text = "\n\n".join(parts) + "\n"
    print(text)
    if options.markdown:
        report.write(options.markdown, text)
    return 0


PAGE = """# Profiles

Written by `python benchmarks/profiles.py --markdown docs/profiles.md`. The worker is sampled by py-spy while
it drains no-op `async def` jobs (sampling slows it down); a function's share is what it does itself, the C
code it calls included; threads that only wait are left out. Statements are those of one whole drain."""


if __name__ == "__main__":
    sys.exit(main())
