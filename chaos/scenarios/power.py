"""The power is cut: what was written and not yet synced may be gone."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from chaos.arena import ROOT
from chaos.checker import PLACES
from chaos.host import application
from chaos.ledger import Ledger
from chaos.place import Place
from chaos.power import Call, Disk, cuts, read_log, strace
from chaos.report import Report
from chaos.scenarios import Size, scenario

CHECKPOINT_BYTES = 200_000
WAYS = ("none", "prefix", "some")
GO_ON = 5
"""On one cut disk of so many the work goes on to its end."""


def lacking() -> str | None:
    """Whether system calls can be watched here."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run([*strace(Path(os.devnull)), "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"strace may not watch here: {tried.stderr.strip()[-200:]}"


@dataclass(slots=True)
class Found:
    """What was wrong after the cuts."""

    cuts: int = 0
    unsynced: int = 0
    """Cuts at which something written was not yet certain."""
    lost: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    ways: Counter[str] = field(default_factory=Counter)


@scenario("power-cut", "the power goes: writes after the last fsync are dropped, torn, or come in any order",
          short=Size(400, 30), long=Size(4_000, 600), databases=("sqlite",), needs=lacking)  # fmt: skip
def power_cut(place: Place, size: Size, seed: int) -> Report:
    """Every enqueue that returned and every end that was seen is there, the file is sound, and the work goes on."""
    began, chance = time.monotonic(), Random(seed)
    found, jobs = _cut(place.directory / "full", size, "full", chance)
    counter_example, _ = _cut(place.directory / "normal", Size(size.jobs // 4, size.faults // 2), "normal", chance)
    problems = [*found.broken[:1], *found.stuck[:1]]
    if found.lost:
        problems.append(f"{len(found.lost)} enqueues that had returned are gone")
    if found.undone:
        problems.append(f"{len(found.undone)} completions that had been seen are gone")
    if not found.unsynced:
        problems.append("at no cut was anything unsynced: nothing is shown")
    if not counter_example.lost | counter_example.undone:
        problems.append("with synchronous=normal nothing was lost either: nothing is shown")
    return Report(
        scenario="power-cut",
        database="sqlite",
        jobs=jobs,
        runs=jobs,
        faults={
            "power cuts": found.cuts,
            "with unsynced writes": found.unsynced,
            "lost with synchronous=normal, as they may be": len(counter_example.lost | counter_example.undone),
        },
        cut_short=0,
        lost=len(found.lost | found.undone),
        doubled=0,
        robbed=0,
        deadlocks=0,
        rescue_p50=None,
        rescue_p99=None,
        rescue_allowed=0.0,
        seconds=time.monotonic() - began,
        seed=seed,
        problems=problems,
    )


def _cut(directory: Path, size: Size, synchronous: str, chance: Random) -> tuple[Found, int]:
    """Let some work be done, and see what would be there had the power gone at each of many moments."""
    directory.mkdir()
    calls = _watched(directory, size.jobs, synchronous, chance.randrange(1 << 30))
    said = [call for call in calls if call.path == str(directory / "ledger")]
    promises = [call.began for call in said]
    writes = [call.ended for call in calls if call.name == "pwrite64" and call.ended > promises[0]]
    # Some cuts come just when something has been promised, the others in the middle of writing.
    at = [chance.choice(promises if chance.random() < 0.3 else writes) for _ in range(size.faults)]
    found = Found()
    for n, (line, disk) in enumerate(cuts([call for call in calls if call.name != "write"], sorted(at))):
        promised = [text.split() for call in said if call.began <= line for text in call.data.decode().splitlines()]
        _judge(directory / "cut", disk, promised, found, chance, go_on=synchronous == "full" and n % GO_ON == 0)
    return found, size.jobs


def _watched(directory: Path, jobs: int, synchronous: str, seed: int) -> list[Call]:
    """The system calls of a worker, a producer and somebody who looks on."""
    options = {"settings": {"synchronous": synchronous}, "worker": {"thread_slots": 2, "async_slots": 4},
               "checkpoint_bytes": CHECKPOINT_BYTES}  # fmt: skip
    given = json.dumps({"jobs": jobs, "seed": seed, "options": options})
    url, ledger = f"sqlite:///{directory / 'duly.db'}", str(directory / "ledger")
    subprocess.run(
        [*strace(directory / "log"), sys.executable, "-m", "chaos.powered", url, ledger, given],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=1_200,
    )
    calls = read_log(directory / "log")
    (directory / "log").unlink()
    return calls


def _judge(
    directory: Path, disk: Disk, promised: list[list[str]], found: Found, chance: Random, *, go_on: bool
) -> None:
    how = WAYS[found.cuts % len(WAYS)]
    found.cuts += 1
    found.unsynced += any(disk.pending[path] for path in disk.pending if path.endswith((".db", "-wal")))
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for path, image in disk.after_cut(how, chance).items():
        if path.endswith((".db", "-wal")):
            (directory / Path(path).name).write_bytes(image)
    file = directory / "duly.db"
    with closing(sqlite3.connect(file)) as connection:
        sound = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if sound != "ok":
            found.broken.append(f"the file is not sound after a cut ({how}): {sound}")
            return
        stored = {row[0] for row in connection.execute("SELECT id FROM duly_jobs")}
        done = {row[0] for row in connection.execute("SELECT id FROM duly_ended WHERE state = 'succeeded'")}
    found.lost |= {job for event, job, *_ in promised if event == "stored"} - stored
    found.undone |= {job for event, job, *_ in promised if event == "done"} - done
    if go_on:
        found.stuck += _go_on(file)


def _go_on(file: Path, within: float = 60.0) -> list[str]:
    """Run what is left, as after the machine has come up again."""
    ledger = Ledger(file.with_name("ledger"))
    jobs = application(f"sqlite:///{file}", ledger)
    places = " + ".join(f"(SELECT count(*) FROM duly_{name})" for name in PLACES)
    try:
        with jobs.worker(thread_slots=4, async_slots=8), closing(sqlite3.connect(file, timeout=60)) as connection:
            until = time.monotonic() + within
            while left := connection.execute(f"SELECT {places}").fetchone()[0]:
                if time.monotonic() > until:
                    return [f"{left} jobs had not ended {within:.0f} s after the power was back"]
                time.sleep(0.02)
            failed = connection.execute(
                "SELECT count(*) FROM duly_jobs AS j LEFT JOIN duly_ended AS e ON e.id = j.id "
                "WHERE e.state IS NULL OR e.state <> 'succeeded'"
            ).fetchone()[0]
            return [f"{failed} jobs did not succeed after the power was back"] if failed else []
    finally:
        jobs.close()
        ledger.close()
