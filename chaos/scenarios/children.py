"""Handlers in child processes, and handlers that kill their worker."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from chaos.arena import Arena
from chaos.checker import Kill
from chaos.command import CommandWorker
from chaos.host import LEDGER, application
from chaos.ledger import Line
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario
from duly.worker.identity import started_at

CHILD_SECONDS = 5.0
"""Within this time a child must have ended with its worker. The kernel does it at once; a busy machine is later."""
SLOTS = 3
CRASH_LIMIT = 3


@scenario("children", "`kill -9` of workers whose handlers run in child processes, and of those children",
          short=Size(0, 8), long=Size(0, 150))  # fmt: skip
def children(place: Place, size: Size, seed: int) -> Report:
    """The children of a killed worker end with it; a killed child costs one run, and its worker lives."""
    with place.arena(
        seed=seed, size=size, worker={"thread_slots": 1, "async_slots": 1, "process_slots": SLOTS}
    ) as arena:
        arena.app.close()
        arena.app = application(arena.url, arena.ledger)
        arena.program = "chaos.host"
        arena.env = {LEDGER: str(arena.ledger.path)}
        arena.start(3)
        slowest, spared = 0.0, arena.workers[0].pid
        while arena.goes_on(arena.faults["kills"] + arena.faults["killed children"]):
            _refill(arena)
            arena.pause(0.4)
            if arena.chance.random() < 0.5:
                worker = arena.chance.choice(arena.workers[1:])
                known = _children(arena, worker.pid)
                arena.kill(worker)
                arena.start_soon()
                slowest = max(slowest, _gone(arena, known))
            elif alive := [pid for pid in _children(arena, spared) if started_at(pid)]:
                victim = arena.chance.choice(alive)
                arena.facts.kills.append(Kill(victim, time.monotonic(), time.time()))
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    arena.faults["killed children"] += 1
        arena.settle()
        if arena.workers[0].process.poll() is not None:
            arena.problems.append("a worker did not survive that its child was killed")
        while arena.workers:
            arena.workers.pop().close()
        _bury(arena)
        left = _gone(arena, [pid for pid, _ in _processes_of(arena.ledger.path) if pid != os.getpid()])
        report = arena.report("children", place.database, log=place.log)
        if max(slowest, left) > CHILD_SECONDS:
            report.problems.append(f"a child outlived its worker by {max(slowest, left):.1f} s")
        return report


def _refill(arena: Arena) -> None:
    """Keep every slot busy with runs of some length, some of which do not hear SIGTERM."""
    while arena.left(30) < 12:
        call = {"seconds": arena.chance.uniform(0.05, 0.6), "stubborn": arena.chance.random() < 0.3}
        arena.ledger.stored(job.id for job in arena.app["in_child"].enqueue_many([call] * 4))
        arena.stored += 4


def _children(arena: Arena, worker: int) -> list[int]:
    """The children of a worker that have begun a run."""
    return sorted({line.pid for line in arena.ledger.lines() if line.event == "child" and line.token == worker})


def _gone(arena: Arena, pids: list[int]) -> float:
    """Wait until these processes have ended. Returns how long that took."""
    began = time.monotonic()
    while any(started_at(pid) for pid in pids) and time.monotonic() - began < 2 * CHILD_SECONDS:
        time.sleep(0.005)
    return time.monotonic() - began


def _bury(arena: Arena) -> None:
    """Tell the checker that children died with their worker."""
    killed = {kill.pid: kill for kill in arena.facts.kills}
    for line in arena.ledger.lines():
        if line.event == "child" and line.token in killed:
            arena.facts.kills.append(killed[line.token]._replace(pid=line.pid))


def _processes_of(ledger: Path) -> list[tuple[int, str]]:
    """All processes that were started for this ledger: it is in their environment."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{LEDGER}={ledger}".encode() in (each / "environ").read_bytes():
                found.append((int(each.name), (each / "cmdline").read_text(errors="replace")))
    return found


@scenario("poison", "handlers that kill their worker, under a supervisor", short=Size(800, 1), long=Size(20_000, 8))
def poison(place: Place, size: Size, seed: int) -> Report:
    """A pill fails after the crash limit, takes no more workers than that, and everything else is done."""
    with place.arena(seed=seed, size=size, settings={"crash_limit": CRASH_LIMIT}) as arena:
        arena.app.close()
        arena.app = application(arena.url, arena.ledger)
        worker = CommandWorker(arena, "--processes", "5")
        pills = 0
        for _ in range(size.faults):
            innocent = [{"seconds": arena.chance.random() * 0.1} for _ in range(size.jobs // size.faults // 2)]
            for name in ("work", "awork"):
                arena.ledger.stored(job.id for job in arena.app[name].enqueue_many(innocent[: len(innocent) // 2]))
                arena.ledger.write("doomed", arena.app["pill"].enqueue().id, 0)
                arena.ledger.stored(job.id for job in arena.app[name].enqueue_many(innocent[len(innocent) // 2 :]))
                pills += 1
            arena.settle()
        deadly = [line for line in arena.ledger.lines() if line.event == "deadly"]
        _note_deaths(arena, deadly)
        arena.faults["pills"], arena.faults["workers killed"] = pills, len(deadly)
        worst = max(sum(line.job == job for line in deadly) for job in {line.job for line in deadly})
        if worst > CRASH_LIMIT:
            arena.problems.append(f"one job killed {worst} workers, allowed are {CRASH_LIMIT}")
        if len(deadly) < CRASH_LIMIT:
            arena.problems.append(f"{pills} pills killed only {len(deadly)} workers: nothing is shown")
        worker.close()
        return arena.report("poison", place.database, log=place.log)


def _note_deaths(arena: Arena, deadly: list[Line]) -> None:
    """Tell the checker who died when, from the last words."""
    wall = time.time() - time.monotonic()
    for line in deadly:
        arena.facts.kills.append(Kill(line.pid, line.at, line.at + wall))
