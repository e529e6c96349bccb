"""Worker processes that are killed, or stand still past their lease."""

from __future__ import annotations

import os
import signal
import time

from chaos.arena import Arena
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario

PROCESSES = 4


def work_and_kill(arena: Arena, mean: float) -> None:
    """While jobs flow, end a worker at a random moment and start another, until enough were ended.

    The first lives on: who is to say that a lease has lapsed must have been in touch for a whole lease.
    """
    while arena.goes_on(arena.faults["kills"]):
        arena.pause(mean)
        arena.kill(arena.chance.choice(arena.workers[1:]))
        arena.start_soon()


@scenario("kills", "`kill -9` at random points", short=Size(6_000, 12), long=Size(120_000, 210))
def kills(place: Place, size: Size, seed: int) -> Report:
    """Workers on one host: the others see that a process has ended."""
    with place.arena(seed=seed, size=size) as arena:
        arena.start(PROCESSES)
        arena.produce()
        work_and_kill(arena, mean=0.4)
        arena.settle()
        return arena.report("kills", place.database, log=place.log)


@scenario("kills-apart", "`kill -9`, each worker as on a host of its own", short=Size(3_000, 6), long=Size(60_000, 100))
def kills_apart(place: Place, size: Size, seed: int) -> Report:
    """Nobody sees that a process has ended: the lease decides."""
    with place.arena(seed=seed, size=size, apart=True) as arena:
        arena.start(PROCESSES)
        arena.produce()
        work_and_kill(arena, mean=0.6)
        arena.settle()
        return arena.report("kills-apart", place.database, log=place.log)


@scenario("paused", "SIGSTOP past the lease, then SIGCONT", short=Size(3_000, 4), long=Size(60_000, 60))
def paused(place: Place, size: Size, seed: int) -> Report:
    """A worker stands still, its runs are given to others, and it goes on where it was."""
    with place.arena(seed=seed, size=size) as arena:
        arena.start(PROCESSES)
        arena.produce(seconds=0.1, share=0.2)
        while arena.goes_on(arena.faults["pauses"]):
            some = arena.chance.sample(arena.workers[1:], 2)
            ends = [arena.disturbing(process) for process in some]
            for process in some:
                os.kill(process.pid, signal.SIGSTOP)
            time.sleep(arena.lease * arena.chance.uniform(1.2, 1.8))
            for process, over in zip(some, ends, strict=True):
                os.kill(process.pid, signal.SIGCONT)
                over()
            arena.faults["pauses"] += len(some)
            time.sleep(arena.lease * 0.7)
        arena.settle()
        return arena.report("paused", place.database, log=place.log)
