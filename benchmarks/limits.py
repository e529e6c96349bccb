"""Limits, rates, keys and fair shares under load, on a PostgreSQL and an SQLite file of their own.

    python benchmarks/limits.py                         everything (about 15 minutes)
    python benchmarks/limits.py --only killed rate      some of it
    python benchmarks/limits.py --scale 0.02            a rehearsal: its figures mean nothing

killed: limit 3, four processes with 20 slots, processes killed at random. never: a limit never reached.
fifty: limit 50, 10 ms handlers. keys: 100,000 keys with limit 1. full, paused: a million jobs that may not
run. flood: one tenant has 500,000 jobs, another comes. weights: 1 to 3. rate: 100/s, burst 10, 4 processes.
"""

import random
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from places import Found, Place, main

PROCESSES = 4


class Note(NamedTuple):
    """One line of a ledger."""

    at: int
    what: str
    pid: int
    job: str
    key: str


def ledger(folder: Path) -> list[Note]:
    """What the handlers wrote, in order of time."""
    notes = []
    for path in folder.glob("ledger-*"):
        for line in path.read_text().splitlines():
            parts = line.split(" ")
            if len(parts) == 5:  # a line that a kill cut short says nothing
                notes.append(Note(int(parts[0]), parts[1], int(parts[2]), parts[3], parts[4]))
    return sorted(notes)


def most_live(notes: list[Note], killed: dict[int, int]) -> int:
    """How many runs were live at once at most. A killed run ends at its kill."""
    ends = {(note.pid, note.job): note.at for note in notes if note.what == "end"}
    changes = []
    for note in notes:
        if note.what == "start":
            end = ends.get((note.pid, note.job), killed.get(note.pid))
            if end is not None:
                changes += [(note.at, 1), (end, -1)]
    live = most = 0
    for _, change in sorted(changes):
        live += change
        most = max(most, live)
    return most


def wait_for(place: Place, n: int, *, every: float = 1.0, most: float = 600.0) -> None:
    """Wait until so many jobs have succeeded."""
    place.do("wait", n=n, every=every, most=most)


def killed(place: Place, scale: float) -> Found:
    n = int(20_000 * scale)
    place.do("fill", task="three", n=n)
    workers: list[subprocess.Popen[bytes]] = [place.start_worker(slots=20) for _ in range(PROCESSES)]
    deaths: dict[int, int] = {}
    chance = random.Random(7)
    began = time.monotonic()
    try:
        while place.do("ended")["ended"].get("succeeded", 0) < n and time.monotonic() - began < 900:
            time.sleep(chance.uniform(0.5, 2.0))
            victim = chance.randrange(PROCESSES)
            workers[victim].send_signal(signal.SIGKILL)
            deaths[workers[victim].pid] = time.monotonic_ns()
            workers[victim].wait()
            workers[victim] = place.start_worker(slots=20)
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait(60)
    notes = ledger(place.folder)
    done = place.do("ended")
    return {
        "jobs": n,
        "succeeded": done["ended"].get("succeeded", 0),
        "left": done["left"],
        "killed": len(deaths),
        "most_live": most_live(notes, deaths),
        "seconds": round(time.monotonic() - began, 1),
    }


def drained(place: Place, task: str, n: int, **settings: object) -> int:
    """Fill, start one worker, wait, and say how many a second it ran."""
    place.do("fill", task=task, n=n)
    place.do("come_to_rest")
    before = place.do("ended")["ended"].get("succeeded", 0)
    began = time.time()
    with place.worker(**settings):
        wait_for(place, before + n, every=0.25)
    return int(place.do("rate_since", task=task, since=began)["per_second"])


def never(place: Place, scale: float) -> Found:
    n = int(40_000 * scale)
    rates: dict[str, list[int]] = {"free": [], "thousand": []}
    for round_ in range(3):
        for task in ("free", "thousand") if round_ % 2 == 0 else ("thousand", "free"):
            rates[task].append(drained(place, task, n))
    ratios = [limited / free for limited, free in zip(rates["thousand"], rates["free"], strict=True)]
    return {
        "free": rates["free"],
        "limit_1000": rates["thousand"],
        "ratio": round(statistics.median(ratios), 3),
    }


def fifty(place: Place, scale: float) -> Found:
    rates = [drained(place, "fifty", int(20_000 * scale), slots=60) for _ in range(3)]
    return {"rates": rates, "per_second": round(statistics.median(rates))}


def keys(place: Place, scale: float) -> Found:
    count = int(100_000 * scale)
    filled = place.do("fill", task="keyed", n=2 * count, keys=count)
    with place.worker():
        wait_for(place, 2 * count, every=1.0)
    notes = ledger(place.folder)
    by_key: dict[str, list[Note]] = {}
    for note in notes:
        by_key.setdefault(note.key, []).append(note)
    return {
        "keys": count,
        "fill_s": filled["seconds"],
        "most_live_of_a_key": max(most_live(some, {}) for some in by_key.values()),
        **place.do("spans", task="keyed"),
    }


def beside(place: Place, scale: float, prepare: Callable[[Place, int], object]) -> Found:
    """Pick-up and drain of a task on an empty database, and beside a million jobs that may not run."""
    found: Found = {"blocked_jobs": int(1_000_000 * scale)}
    n = int(20_000 * scale)
    for name in ("empty", "beside"):
        if name == "beside":
            prepare(place, found["blocked_jobs"])
        place.do("fill", task="free", n=n)
        place.do("come_to_rest")
        before = place.do("ended")["ended"].get("succeeded", 0)
        began = time.time()
        with place.worker():
            wait_for(place, before + n, every=0.25)
            drain = place.do("rate_since", task="free", since=began)
            since = time.time()
            place.do("enqueue_now_and_then", task="free", tenant="", n=500, every=0.01)
            time.sleep(1)
            latency = place.do("rate_since", task="free", since=since)
        found[name] = {
            "per_second": drain["per_second"],
            "p50": latency["wait_p50_ms"],
            "p99": latency["wait_p99_ms"],
        }
    found["drain_ratio"] = round(found["beside"]["per_second"] / found["empty"]["per_second"], 3)
    found["p99_ratio"] = round(found["beside"]["p99"] / found["empty"]["p99"], 3)
    return found


def full(place: Place, scale: float) -> Found:
    return beside(place, scale, lambda place, n: place.do("fill", task="full", n=n))


def paused(place: Place, scale: float) -> Found:
    def prepare(place: Place, n: int) -> None:
        place.do("fill", task="free", n=n, tenant="stopped")
        place.do("pause", tenant="stopped")

    place.do("fill", task="free", n=1)
    place.do("pause", tenant="stopped")
    return beside(place, scale, prepare)


def flood(place: Place, scale: float) -> Found:
    place.do("fill", task="slow", n=int(500_000 * scale), tenant="a")
    with place.worker(slots=20):
        time.sleep(3)
        place.do(
            "enqueue_now_and_then", task="slow", tenant="b", n=int(1_000 * min(1.0, scale * 10)), every=0.02
        )
        time.sleep(1)
    return {"flood": int(500_000 * scale), **place.do("spans", task="slow", tenant="b")}


def weights(place: Place, scale: float) -> Found:
    n = int(20_000 * scale)
    place.do("weight", tenant="heavy", weight=3)
    for tenant in ("light", "heavy"):
        place.do("fill", task="free", n=n, tenant=tenant)
    with place.worker():
        wait_for(place, n, every=0.1)
    shares = place.do("shares", task="free", first=n)
    light = shares.get("light", 0)
    return {**shares, "ratio": round(shares.get("heavy", 0) / max(1, light), 3)}


def rate(place: Place, scale: float) -> Found:
    seconds, per_second, burst = 30 * max(0.1, scale), 100, 10
    place.do("fill", task="rated", n=int(per_second * seconds * 2))
    workers = [place.start_worker(slots=20) for _ in range(PROCESSES)]
    time.sleep(seconds + 5)
    for worker in workers:
        worker.terminate()
        worker.wait(60)
    starts = [note.at / 1e9 for note in ledger(place.folder)]
    starts = [at for at in starts if at <= starts[0] + seconds]
    worst = max(
        (j - i + 1) - (burst + per_second * (starts[j] - starts[i]))
        for i in range(len(starts))
        for j in range(i, len(starts))
    )
    return {
        "starts": len(starts),
        "of_allowance": round(len(starts) / (burst + per_second * seconds), 4),
        "over_in_the_worst_window": round(worst, 3),
    }


WORK: dict[str, Callable[[Place, float], Found]] = {
    "killed": killed,
    "never": never,
    "fifty": fifty,
    "keys": keys,
    "full": full,
    "paused": paused,
    "flood": flood,
    "weights": weights,
    "rate": rate,
}

ROWS: list[tuple[str, str, Callable[[Found], str]]] = [
    (
        "limit 3, 4 processes, killed at random: jobs",
        "killed",
        lambda f: f"{f['succeeded']:,} of {f['jobs']:,}",
    ),
    ("... processes killed", "killed", lambda f: str(f["killed"])),
    ("... live runs at once, at most", "killed", lambda f: str(f["most_live"])),
    ("limit 1,000 that is never reached, of the drain without", "never", lambda f: str(f["ratio"])),
    ("limit 50, 10 ms handler", "fifty", lambda f: f"{f['per_second']:,}/s"),
    ("keys with limit 1, two jobs each", "keys", lambda f: f"{f['keys']:,}"),
    ("... runs of one key at once, at most", "keys", lambda f: str(f["most_live_of_a_key"])),
    ("... drain", "keys", lambda f: f"{f['per_second']:,}/s"),
    ("jobs of a task at its limit", "full", lambda f: f"{f['blocked_jobs']:,}"),
    ("... another task's drain, of that on an empty table", "full", lambda f: str(f["drain_ratio"])),
    ("... its pick-up p99, likewise", "full", lambda f: f"{f['p99_ratio']} ({f['beside']['p99']} ms)"),
    ("jobs of a paused tenant", "paused", lambda f: f"{f['blocked_jobs']:,}"),
    ("... another's drain, of that on an empty table", "paused", lambda f: str(f["drain_ratio"])),
    ("... its pick-up p99, likewise", "paused", lambda f: f"{f['p99_ratio']} ({f['beside']['p99']} ms)"),
    ("jobs of 20 ms by tenant A, 20 slots", "flood", lambda f: f"{f['flood']:,}"),
    ("... wait of tenant B, p50 / p99", "flood", lambda f: f"{f['wait_p50_ms']} / {f['wait_p99_ms']} ms"),
    ("weights 1 to 3: shares of the first 20,000", "weights", lambda f: f"1 to {f['ratio']}"),
    (
        "rate 100/s, burst 10, 30 s, 4 processes: of the allowance",
        "rate",
        lambda f: f"{f['of_allowance']:.1%}",
    ),
    ("... starts over 10 + 100 w, worst window", "rate", lambda f: str(f["over_in_the_worst_window"])),
]

PAGE = """# Limits, keys and fair shares under load

Written by `python benchmarks/limits.py --markdown docs/benchmarks-limits.md`: PostgreSQL with fsync on,
SQLite with synchronous FULL, client and server on one machine with 2 cores. One worker process unless said
otherwise. Live runs and starts are from what the handlers themselves wrote, by one clock; a run that was
killed ends at its kill.

"""


def markdown(results: Found) -> str:
    """The page for the documentation."""
    lines = ["| | PostgreSQL | SQLite |", "|---|---|---|"]
    for title, work, show in ROWS:
        cells = []
        for kind in ("postgresql", "sqlite"):
            found = results.get(f"{work} {kind}")
            cells.append("-" if found is None else show(found))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return PAGE + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(str(__doc__), WORK, "duly_limits", markdown)
