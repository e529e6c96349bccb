"""Wall clocks that are wrong and jump.

On PostgreSQL the server's clock counts, whatever a worker's says. On SQLite there is one host and one clock: when it is
set, what is scheduled follows it, as it should; leases do not, for they are counted on the clock since boot.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from chaos.arena import Arena
from chaos.host import SetClock, application
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario

HOUR = 3_600.0
WORKERS = 3
EARLY = 0.002
"""Seconds that clocks of one machine may differ by, while they are being slewed."""
KILL_EVERY = 4
RESCUE_SECONDS = 60.0
SETTLE_SECONDS = 240.0
"""Much less than the hour by which clocks are wrong."""
LONG = 4.5
"""Seconds that some runs take: longer than a lease."""


@scenario(
    "clock",
    "wall clocks an hour ahead and behind, which jump back and forth",
    short=Size(600, 12),
    long=Size(40_000, 160),
)
def clock(place: Place, size: Size, seed: int) -> Report:
    """No run is taken from its worker, none of a killed worker waits for an hour, and on PostgreSQL none begins early.

    Nobody sees here that a process has ended: the lease decides.
    """
    with place.arena(seed=seed, size=size, apart=True) as arena:
        arena.program = "chaos.host"
        shared = place.database == "sqlite"
        clocks = [SetClock(place.directory / f"clock-{0 if shared else n}") for n in range(WORKERS)]
        arena.app.close()
        arena.app = application(arena.url, arena.ledger)
        for n, each in enumerate(clocks):
            each.set((HOUR, -HOUR, 0.0)[n])
            _start(arena, place, n if not shared else 0)
        for process in arena.workers:
            process.ready()
        arena.produce(seconds=0.1, share=0.1, backlog=300)
        under_way = 0
        while arena.goes_on(arena.faults["jumps"]):
            _some_that_last(arena)
            arena.pause(0.3)
            arena.chance.choice(clocks).set(arena.chance.choice((-HOUR, -7.0, 0.0, 7.0, HOUR)))
            arena.faults["jumps"] += 1
            under_way += _running(arena)
            if arena.faults["jumps"] % KILL_EVERY == 0:
                arena.kill(arena.chance.choice(arena.workers[1:]))
                _start(arena, place, arena.chance.randrange(WORKERS) if not shared else 0)
        if shared:
            _kill_while_ahead(arena, clocks[0])
        for each in clocks:
            # Where one clock counts for all, what is to run at a moment runs when that clock says so.
            each.set(2 * HOUR if shared else arena.chance.choice((-HOUR, HOUR)))
        arena.settle(within=SETTLE_SECONDS)
        arena.faults["runs under way at a jump"] = under_way
        if not under_way:
            arena.problems.append("nothing ran when a clock jumped: nothing is shown")
        _no_extra_runs(arena)
        if not shared:
            _none_early(arena)
            return arena.report("clock", place.database, log=place.log)
        # What the record says of the moment of a rescue is on a clock that jumped.
        arena.facts.kills = [kill._replace(wall=float("inf")) for kill in arena.facts.kills]
        return replace(arena.report("clock", place.database), rescue_p50=None, rescue_p99=None)


def _start(arena: Arena, place: Place, n: int) -> None:
    """Start a worker with one of the clocks."""
    arena.options = {"clock": str(place.directory / f"clock-{n}")}
    arena.start_soon()


def _kill_while_ahead(arena: Arena, clock: SetClock) -> None:
    """A worker is killed, and the clock set back by two hours: its leases must not last for as long."""
    clock.set(HOUR)
    first = arena.app["work"].using(priority=100)  # whatever else waits by now
    made = {job.id for job in first.enqueue_many([{"seconds": 3 * LONG}] * 24)}
    arena.ledger.stored(made)

    def under_way(pids: set[int]) -> list[tuple[int, str]]:
        """Which of the jobs made here run in which of these processes."""
        lines = arena.ledger.lines()
        wanted = made - {line.job for line in lines if line.event == "end"}
        return [(line.pid, line.job) for line in lines if line.job in wanted and line.pid in pids]

    until, found = time.monotonic() + RESCUE_SECONDS, list[tuple[int, str]]()
    while not found and time.monotonic() < until:
        time.sleep(0.05)
        found = under_way({worker.pid for worker in arena.workers})  # whichever of them came first
    victim = next((worker for worker in arena.workers if found and worker.pid == found[-1][0]), arena.workers[-1])
    time.sleep(arena.lease / 2)  # renewed on the clock that is ahead
    arena.kill(victim)
    clock.set(-HOUR)
    theirs = {job for _, job in under_way({victim.pid})}
    if not theirs:
        arena.problems.append("the worker that was killed while the clock was ahead ran nothing: nothing is shown")
    until = time.monotonic() + RESCUE_SECONDS
    while theirs and time.monotonic() < until:
        time.sleep(0.1)
        others = {line.job for line in arena.ledger.lines() if line.event == "start" and line.pid != victim.pid}
        theirs -= others
    if theirs:
        arena.problems.append(
            f"{len(theirs)} runs waited for more than {RESCUE_SECONDS:.0f} s after the clock was set back"
        )


def _some_that_last(arena: Arena) -> None:
    """Runs longer than a lease, and jobs that have others run later."""
    made = arena.app["work"].enqueue_many([{"seconds": LONG}] * 2)
    made += arena.app["later"].enqueue_many([{"delay": arena.chance.uniform(0.5, 2.0)} for _ in range(3)])
    arena.ledger.stored(job.id for job in made)


def _running(arena: Arena) -> int:
    lines = arena.ledger.lines()
    return sum(line.event == "start" for line in lines) - sum(line.event == "end" for line in lines)


def _no_extra_runs(arena: Arena) -> None:
    """But for what ran in a worker that was killed, every job begins exactly once."""
    killed = {kill.pid for kill in arena.facts.kills}
    begun = Counter(line.job for line in arena.ledger.lines() if line.event == "start" and line.pid not in killed)
    if extra := sum(n - 1 for n in begun.values()):
        arena.problems.append(f"{extra} runs too many")


def _none_early(arena: Arena) -> None:
    """A job that is to run after a time does not begin before, whoever stored it and whoever runs it."""
    lines = arena.ledger.lines()
    due = {line.job: line.token / 1e6 for line in lines if line.event == "due"}
    early = [due[line.job] - line.at for line in lines if line.event == "start" and line.job in due]
    arena.faults["delayed jobs"] = len(due)
    if worst := max((seconds for seconds in early if seconds > EARLY), default=0.0):
        arena.problems.append(f"a job began {worst:.3f} s early")
    if not due:
        arena.problems.append("no job was to run later: nothing is shown")
    if early and -min(early) > 60:
        arena.problems.append(f"a job began {-min(early):.0f} s late")
