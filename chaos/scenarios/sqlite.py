"""Many processes on one SQLite file."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from chaos.arena import ROOT, Arena
from chaos.checker import Kill, connect
from chaos.host import application
from chaos.ledger import Ledger
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario

WORKERS = 10
PATIENT = {"lease": 15.0}
"""The lease that workers have unless told otherwise: so many processes on a few cores wait for seconds."""
PRODUCERS = 4
READERS = 2
MOST_WAL = 64 << 20
LASTING = 0.1
"""How long a run lasts at most."""
READ_SECONDS = 1.5
"""How long somebody who reads keeps a snapshot."""


@scenario("crowd", "16 processes on one SQLite file: workers, producers, long readers, kills",
          short=Size(1_200, 6), long=Size(60_000, 120), databases=("sqlite",))  # fmt: skip
def crowd(place: Place, size: Size, seed: int) -> Report:
    """Nobody is ever told "database is locked", the write-ahead log stays short, and the file is sound."""
    with place.arena(seed=seed, size=size, settings=PATIENT, worker={"thread_slots": 2, "async_slots": 4}) as arena:
        others = [_Other(arena, what, n) for what, n in (("produce", PRODUCERS), ("read", READERS)) for n in range(n)]
        try:
            arena.start(WORKERS)
            longest = _storm(arena, others, size)
            for other in others:
                other.end()
            arena.settle()
        finally:
            for other in others:
                other.end()
        arena.faults["processes"] = WORKERS + PRODUCERS + READERS
        arena.faults["MB of log at most"] = longest >> 20
        if longest > MOST_WAL:
            arena.problems.append(f"the write-ahead log grew to {longest >> 20} MB, allowed are {MOST_WAL >> 20}")
        arena.problems += _complaints(arena)
        return arena.report("crowd", place.database)


def _storm(arena: Arena, others: list[_Other], size: Size) -> int:
    """Kill now and then, until enough was done. Returns how long the log became, in bytes."""
    log, longest = Path(f"{arena.url.removeprefix('sqlite:///')}-wal"), 0
    while (striking := arena.goes_on(arena.faults["kills"])) or _count(arena) < size.jobs:
        arena.pause(0.4)
        with suppress(FileNotFoundError):
            longest = max(longest, log.stat().st_size)
        if not striking:
            continue
        if arena.chance.random() < 0.6:
            arena.kill(arena.chance.choice(arena.workers[1:]))
            arena.start_soon()
        else:
            arena.chance.choice(others).replace()
            arena.faults["kills"] += 1
    return longest


def _count(arena: Arena) -> int:
    with closing(connect(arena.direct_url)) as connection:
        return int(connection.execute("SELECT count(*) FROM duly_jobs").fetchone()[0])


def _complaints(arena: Arena) -> list[str]:
    """What producers, readers and handlers were told that they should not have been."""
    found = [path.read_text().strip() for path in sorted(arena.directory.glob("*.complaints"))]
    with closing(connect(arena.direct_url)) as connection:
        rows = connection.execute("SELECT outcome, error FROM duly_runs WHERE outcome NOT IN ('succeeded', 'crashed')")
        found += [f"a run ended as {outcome}: {error}" for outcome, error in rows]
        sound = connection.execute("PRAGMA integrity_check").fetchone()[0]
    if sound != "ok":
        found.append(f"the file is damaged: {sound}")
    return [text for text in found if text][:3]


class _Other:
    """A producer or a reader in a process of its own."""

    def __init__(self, arena: Arena, what: str, n: int) -> None:
        self._arena = arena
        self._what = what
        self._complaints = arena.directory / f"{what}-{n}.complaints"
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        arena = self._arena
        seed = str(arena.chance.randrange(1 << 30))
        return subprocess.Popen(
            [sys.executable, "-m", __name__, self._what, arena.url, arena.ledger.path, self._complaints, seed],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
        )

    def replace(self) -> None:
        """Kill it, and start another."""
        self._arena.facts.kills.append(Kill(self._process.pid, time.monotonic(), time.time()))
        self._process.kill()
        self.end()
        self._process = self._started()

    def end(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)


def produce(url: str, ledger: Ledger, chance: random.Random) -> None:
    """Enqueue some jobs, one by one and many at once, also some that enqueue others."""
    jobs = application(url, ledger)
    name = chance.choice(("work", "awork", "more"))
    seconds = chance.choice((0.0, chance.random() * LASTING))
    if chance.random() < 0.5:
        ledger.stored([jobs[name].enqueue(seconds).id])
    else:
        ledger.stored(job.id for job in jobs[name].enqueue_many([{"seconds": seconds}] * chance.randint(2, 30)))
    jobs.close()


def read(url: str, ledger: Ledger, chance: random.Random) -> None:
    """Keep a snapshot for a while, as a report or a backup does."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM duly_jobs").fetchone()
        time.sleep(chance.uniform(0.1, READ_SECONDS))
        connection.execute("SELECT count(*) FROM duly_runs").fetchone()
        connection.execute("COMMIT")


def main() -> None:
    """Do one of these again and again until standard input ends, and note what was refused."""
    what, url, path, complaints, seed = sys.argv[1:6]
    ledger, chance, over = Ledger(Path(path)), random.Random(int(seed)), threading.Event()

    def watch() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    while not over.is_set():
        try:
            {"produce": produce, "read": read}[what](url, ledger, chance)
        except Exception as error:
            with Path(complaints).open("a") as file:
                file.write(f"somebody who was to {what} was told: {error!r}\n")
        over.wait(chance.random() * 0.1)


if __name__ == "__main__":
    main()
