"""Workers that are told to stop under load: in good order, in a hurry, and killed when they take too long."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import closing

from chaos.arena import Arena
from chaos.checker import Kill, connect
from chaos.command import CommandWorker
from chaos.host import application
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario

PROCESSES = 3
ECHO = 0.6
"""A second SIGTERM sooner than this is taken for the first."""
STOP_SECONDS = 30.0
"""Grace, the moment for handlers to stop, what ends written down, and a slow machine."""


@scenario(
    "shutdown",
    "SIGTERM under load, a second one, SIGKILL after the grace",
    short=Size(600, 6),
    long=Size(60_000, 200),
)
def shutdown(place: Place, size: Size, seed: int) -> Report:
    """What is given back at a stop has lost no attempt; only a kill counts."""
    with place.arena(seed=seed, size=size) as arena:
        arena.app.close()
        arena.app = application(arena.url, arena.ledger)
        workers = [CommandWorker(arena) for _ in range(PROCESSES)]
        for worker in workers:
            worker.ready()
        arena.produce(seconds=4.0, share=0.15, backlog=60, tasks=("work", "awork"))
        try:
            while arena.faults["SIGTERM"] < size.faults:
                arena.pause(0.3)
                n = arena.chance.randrange(PROCESSES)
                _stop(arena, workers[n])
                workers[n].close()
                workers[n] = CommandWorker(arena)
                if arena.chance.random() < 0.5:
                    workers[n].ready()
            arena.settle()
        finally:
            for worker in workers:
                worker.close()
        _check_attempts(arena)
        return arena.report("shutdown", place.database, log=place.log, bites=False)


def _stop(arena: Arena, worker: CommandWorker) -> None:
    """Tell a worker to stop, in one of three ways, and see that it does."""
    over = arena.disturbing(worker)
    worker.send(signal.SIGTERM)
    arena.faults["SIGTERM"] += 1
    match ("patient", "hurry", "patient", "kill")[arena.faults["SIGTERM"] % 4]:
        case "hurry":
            time.sleep(ECHO)
            # What it holds is given back a moment before it is gone: told to stop at once, it is as good as killed.
            arena.facts.kills.append(Kill(worker.pid, time.monotonic(), time.time()))
            worker.send(signal.SIGTERM)
            arena.faults["second SIGTERM"] += 1
        case "kill":
            arena.pause(0.5)
            arena.facts.kills.append(Kill(worker.pid, time.monotonic(), time.time()))
            worker.send(signal.SIGKILL)
            arena.faults["SIGKILL"] += 1
        case _:
            pass
    try:
        code = worker.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        arena.problems.append(f"a worker had not stopped {STOP_SECONDS:.0f} s after SIGTERM")
        worker.process.kill()
    else:
        if code not in (0, -signal.SIGKILL, -signal.SIGTERM):  # it may not have begun to listen
            arena.problems.append(f"a worker that was told to stop ended with exit code {code}")
    over()


def _check_attempts(arena: Arena) -> None:
    """Every attempt on record is a run that ended by itself or was killed; one that was given back is none."""
    prefix = "duly." if arena.direct_url.startswith("postgres") else "duly_"
    with closing(connect(arena.direct_url)) as connection:
        counted = connection.execute(
            f"SELECT e.id, e.attempt, count(r.job_id) FROM {prefix}ended AS e "
            f"LEFT JOIN {prefix}runs AS r ON r.job_id = e.id AND r.outcome <> 'released' GROUP BY e.id, e.attempt "
            "HAVING e.attempt <> count(r.job_id)"
        ).fetchall()
        runs = connection.execute(f"SELECT count(*) FROM {prefix}runs WHERE outcome <> 'released'").fetchone()[0]
        odd = connection.execute(
            f"SELECT outcome, error FROM {prefix}runs WHERE outcome NOT IN ('succeeded', 'released', 'crashed')"
        ).fetchall()
    # What is given back by a worker that stops has begun, and is no run on record.
    given_back = sum(line.event == "start" for line in arena.ledger.lines()) - runs
    arena.faults["given back"] = given_back
    if counted:
        arena.problems.append(f"{len(counted)} jobs lost an attempt to a shutdown, such as {counted[0]}")
    if odd:
        arena.problems.append(f"runs ended as {odd[0]}")
    if given_back <= 0:
        arena.problems.append("no run was given back: nothing is shown")
