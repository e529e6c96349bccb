"""Forks of a process that has open connections, a worker and threads that enqueue."""

from __future__ import annotations

import select
import sqlite3
from contextlib import closing

from chaos.arena import Arena
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario

DONE_SECONDS = 300.0


@scenario(
    "fork", "forks beside open connections, a running worker and busy threads", short=Size(0, 12), long=Size(0, 400)
)
def fork(place: Place, size: Size, seed: int) -> Report:
    """Parent and children enqueue and run jobs at the same time; neither harms the other."""
    with place.arena(seed=seed, size=size) as arena:
        arena.program = "chaos.forking"
        arena.options = {"forks": size.faults, "seed": seed}
        (parent,) = arena.start()
        assert parent.process.stdout is not None
        done = select.select([parent.process.stdout], [], [], DONE_SECONDS + size.faults)[0]
        if not done or parent.process.stdout.readline().strip() != "done":
            raise RuntimeError(f"the process that forks did not come to its end, seed {seed}")
        arena.settle()
        arena.faults["forks"] = size.faults
        arena.problems += _complaints(arena)
        pids = {line.pid for line in arena.ledger.lines() if line.event == "stored"} - {parent.pid}
        if len(pids) < size.faults / 2:
            arena.problems.append(f"only {len(pids)} children have stored anything: nothing is shown")
        if place.server is None:
            with closing(sqlite3.connect(arena.url.removeprefix("sqlite:///"))) as connection:
                if (sound := connection.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                    arena.problems.append(f"the file is damaged: {sound}")
        return arena.report("fork", place.database, log=place.log, bites=False)


def _complaints(arena: Arena) -> list[str]:
    path = arena.directory / "complaints"
    return [f"somebody was told: {path.read_text()[-600:]}"] if path.exists() else []
