"""What an open dashboard costs a worker: how fast it drains with a tab that looks on, and with none.

    python benchmarks/watched.py                  1,000,000 finished and 200,000 waiting jobs (8 minutes)
    python benchmarks/watched.py --scale 0.02     a rehearsal: its figures mean nothing
    python benchmarks/watched.py --markdown docs/benchmarks-watched.md

Needs duly[web,postgres]. Per round 200,000 jobs that do nothing are drained by one worker process without
a dashboard, and as many with `duly web` and a tab on its overview; rounds in turn, ratios per round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from dashboard import databases, fill
from duly import Duly
from places import Place
from venvs import environment

GOAL = 0.9
TOKEN = "only-for-this-benchmark"
PORT = 8494


@contextmanager
def dashboard(url: str) -> Iterator[list[int]]:
    """`duly web`, and a tab that listens. Yields how many messages it got."""
    command = [sys.executable, "-m", "duly", "web", "--url", url, "--port", str(PORT)]
    server = subprocess.Popen(
        command,
        env={**environment(), "DULY_TOKEN": TOKEN},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    got, over = [0], threading.Event()
    headers = {"Authorization": f"Bearer {TOKEN}"}

    def listen() -> None:
        address = f"http://127.0.0.1:{PORT}/live?page=overview"
        while not over.is_set():
            try:
                with httpx.stream("GET", address, headers=headers, timeout=5) as answer:
                    for line in answer.iter_lines():
                        got[0] += line.startswith("data:")
                        if over.is_set():
                            return
            except httpx.HTTPError:
                time.sleep(0.2)

    tab = threading.Thread(target=listen, daemon=True)
    tab.start()
    try:
        until = time.monotonic() + 60
        while got[0] < 2 and time.monotonic() < until:
            time.sleep(0.1)
        if not got[0]:
            sys.exit("the dashboard sends nothing")
        yield got
    finally:
        over.set()
        server.terminate()
        server.wait(30)
        tab.join(10)


def drained(place: Place, n: int) -> int:
    """Store jobs, drain them, and say how many a second."""
    place.do("fill", task="free", n=n)
    began = time.time()
    with place.worker():
        while place.do("left", task="free")["left"]:
            time.sleep(0.25)
    return int(place.do("rate_since", task="free", since=began)["per_second"])


def measure(url: str, scale: float, rounds: int) -> dict[str, Any]:
    """Everything, on one database."""
    jobs = Duly(url)
    jobs.migrate()
    fill(url, jobs, int(1_000_000 * scale), int(200_000 * scale))
    jobs.close()
    n = max(2_000, int(200_000 * scale))
    rates: dict[str, list[int]] = {"alone": [], "watched": []}
    messages = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(url, Path(folder), Path(sys.executable), "duly_limits")
        drained(place, n)  # what only the first costs
        for round_ in range(rounds):
            for how in ("alone", "watched") if round_ % 2 == 0 else ("watched", "alone"):
                if how == "alone":
                    rates[how].append(drained(place, n))
                    continue
                with dashboard(url) as got:
                    before = got[0]
                    rates[how].append(drained(place, n))
                    messages += got[0] - before
    ratios = [watched / alone for alone, watched in zip(rates["alone"], rates["watched"], strict=True)]
    return {**rates, "messages": messages, "ratio": round(statistics.median(ratios), 3)}


def markdown(results: dict[str, Any]) -> str:
    """The page for the documentation."""
    lines = [
        "# A worker beside an open dashboard",
        "",
        "Written by `python benchmarks/watched.py --markdown docs/benchmarks-watched.md`: one worker drains",
        "200,000 jobs that do nothing beside 1,000,000 finished and 200,000 waiting ones, without a",
        "dashboard and with `duly web` and a tab open on its overview, on 2 cores. Jobs per second in each",
        "round, and the median of the rounds' ratios. Goal: 0.9.",
        "",
        "| database | alone | watched | ratio |",
        "|---|---|---|---|",
    ]
    for kind, found in results.items():
        alone, watched = (", ".join(f"{rate:,}" for rate in found[how]) for how in ("alone", "watched"))
        lines.append(f"| {kind} | {alone} | {watched} | {found['ratio']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--databases", nargs="+", choices=["postgresql", "sqlite"], default=["postgresql", "sqlite"]
    )
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page for the documentation")
    options = parser.parse_args()
    os.environ.pop("DULY_TOKEN", None)
    results = {}
    with databases(options.databases) as urls:
        for kind, url in urls.items():
            print(f"{kind} ...", file=sys.stderr, flush=True)
            results[kind] = measure(url, options.scale, options.rounds)
            print(json.dumps({kind: results[kind]}), flush=True)
    if options.markdown:
        options.markdown.write_text(markdown(results))
    low = [kind for kind, found in results.items() if found["ratio"] < GOAL]
    for kind in low:
        print(f"an open dashboard costs more than a tenth on {kind}", file=sys.stderr)
    sys.exit(1 if low else 0)


if __name__ == "__main__":
    main()
