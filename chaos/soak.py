"""Mixed load for an hour: memory, open files, threads, connections, WAL, dead rows and tables must not grow.

    PYTHONPATH=src python -m chaos.soak --database sqlite --minutes 60 --json soak.json
    PYTHONPATH=src python -m chaos.soak --database postgres --minutes 60

Two worker processes, a producer, and a dashboard that somebody reads all the time. What has ended is kept for two
minutes, so that after the warm-up as much comes as goes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

from chaos.checker import UNREACHABLE
from chaos.growth import Gauge, fitted, short
from chaos.place import Place, place
from duly import Duly

ROOT = Path(__file__).parents[1]
WARM_UP = 0.2
"""The share of the time in which things find their size."""
TOKEN = "soak-0123456789abcdef0123456789abcdef"
PAGES = ("/", "/jobs", "/jobs?state=failed", "/runs", "/schedules", "/queues", "/workers", "/api/admin/jobs/stats")


def soak(where: Place, *, minutes: float, rate: float, every: float, port: int) -> list[dict[str, float]]:
    """Run it. Returns the samples, with their time."""
    with closing(Duly(where.url)) as jobs:
        jobs.migrate()
    over = threading.Event()
    kinds = ("--work", "--work", "--serve", "--produce")
    processes = [_start(where.url, what, port=port, rate=rate) for what in kinds]
    reader = threading.Thread(target=_look, args=(over, port), daemon=True)
    gauge = Gauge(where, [process.pid for process in processes[:2]], processes[2].pid)
    samples: list[dict[str, float]] = []
    began = time.monotonic()
    try:
        reader.start()
        while (now := time.monotonic() - began) < 60 * minutes:
            if gone := [process for process in processes if process.poll() is not None]:
                raise RuntimeError(f"a process ended by itself, with {gone[0].returncode}")
            with suppress(*UNREACHABLE):
                samples.append({"at": now, **gauge.sample()})
            if samples and len(samples) % 100 == 0:
                print(f"{now / 60:.1f} min: {json.dumps({k: short(v) for k, v in samples[-1].items()})}", flush=True)
            time.sleep(every)
    finally:
        over.set()
        reader.join(30)
        for process in processes:
            process.kill()
            process.wait()
    return samples


def _look(over: threading.Event, port: int) -> None:
    """Somebody who reads the dashboard."""
    while not over.wait(0.5):
        for page in PAGES:
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}{page}", headers={"Authorization": f"Bearer {TOKEN}"}
            )
            with suppress(OSError):
                urllib.request.urlopen(asked, timeout=10).read()


def _start(url: str, what: str, *, port: int, rate: float) -> subprocess.Popen[bytes]:
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    return subprocess.Popen(
        [sys.executable, "-m", "chaos.soak", what, "--port", str(port), "--rate", str(rate)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "DULY_URL": url, "DULY_TOKEN": TOKEN},
        stdin=subprocess.PIPE,
    )


def take_part(what: argparse.Namespace) -> None:
    """Be one of the processes."""
    from chaos import soak_app

    logging.basicConfig(level=logging.ERROR)
    if what.produce:
        soak_app.produce(what.rate)
    elif what.serve:
        import uvicorn

        from duly.web import create_app

        uvicorn.run(create_app(soak_app.jobs), port=what.port, log_level="error")
    else:
        with soak_app.jobs.worker():
            sys.stdin.read()


def main() -> None:
    """Run it, and say what grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=100, help="jobs a second")
    parser.add_argument("--every", type=float, default=3, help="seconds between samples")
    parser.add_argument("--port", type=int, default=8491, help="where the dashboard listens")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write samples and slopes there")
    for part in ("--work", "--serve", "--produce"):
        parser.add_argument(part, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work or options.serve or options.produce:
        take_part(options)
        return
    with place(options.database) as where:
        samples = soak(where, minutes=options.minutes, rate=options.rate, every=options.every, port=options.port)
    late = [sample for sample in samples if sample["at"] >= 60 * options.minutes * WARM_UP]
    times = [sample["at"] for sample in late]
    slopes = [fitted(name, times, [sample[name] for sample in late]) for name in late[0] if name != "at"]
    rows: list[tuple[str, ...]] = [("Measure", "Mean", "From / to", "Per hour", "Allowed", "")]
    rows += [("---",) * len(rows[0]), *(slope.cells() for slope in slopes)]
    print(f"{options.database}, {options.minutes:.0f} minutes, {options.rate:.0f} jobs a second, {len(late)} samples")
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    if options.json:
        options.json.write_text(json.dumps({"samples": samples, "slopes": [asdict(each) for each in slopes]}) + "\n")
    sys.exit(any(slope.grows for slope in slopes))


if __name__ == "__main__":
    main()
