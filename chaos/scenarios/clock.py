"""Wall clocks that are wrong and jump.

On PostgreSQL the server's clock counts, whatever a worker's says. On SQLite there is one host and one clock: when it is
set, what is scheduled follows it, as it should; leases do not, for they are counted on the clock since boot.
"""

from __future__ import annotations

from chaos.arena import Arena
from chaos.host import SetClock, application
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario

HOUR = 3_600.0
WORKERS = 3
EARLY = 0.002
"""Seconds that clocks of one machine may differ by, while they are being slewed."""
LONG = 4.5
"""Seconds that some runs take: longer than a lease."""


@scenario(
    "clock",
    "wall clocks an hour ahead and behind, which jump back and forth",
    short=Size(1_000, 8),
    long=Size(40_000, 120),
)
def clock(place: Place, size: Size, seed: int) -> Report:
    """No run is taken from its worker, none begins twice, and on PostgreSQL none begins early."""
    with place.arena(seed=seed, size=size) as arena:
        arena.program = "chaos.host"
        shared = place.database == "sqlite"
        clocks = [SetClock(place.directory / f"clock-{0 if shared else n}") for n in range(WORKERS)]
        for n, each in enumerate(clocks):
            each.set((HOUR, -HOUR, 0.0)[n])
            arena.options = {"clock": str(place.directory / f"clock-{0 if shared else n}")}
            arena.start()
        arena.app.close()
        arena.app = application(arena.url, arena.ledger)
        arena.produce(seconds=0.1, share=0.1)
        under_way = 0
        while arena.faults["jumps"] < size.faults:
            _some_that_last(arena)
            arena.pause(0.3)
            arena.chance.choice(clocks).set(arena.chance.choice((-HOUR, -7.0, 0.0, 7.0, HOUR)))
            arena.faults["jumps"] += 1
            under_way += _running(arena)
        for each in clocks:
            # Where one clock counts for all, what is to run at a moment runs when that clock says so.
            each.set(2 * HOUR if shared else arena.chance.choice((-HOUR, HOUR)))
        arena.settle()
        arena.faults["runs under way at a jump"] = under_way
        if not under_way:
            arena.problems.append("nothing ran when a clock jumped: nothing is shown")
        _no_extra_runs(arena)
        if not shared:
            _none_early(arena)
        return arena.report("clock", place.database, log=place.log, bites=False)


def _some_that_last(arena: Arena) -> None:
    """Runs longer than a lease, and jobs that have others run later."""
    made = arena.app["work"].enqueue_many([{"seconds": LONG}])
    made += arena.app["later"].enqueue_many([{"delay": arena.chance.uniform(0.5, 2.0)} for _ in range(3)])
    arena.ledger.stored(job.id for job in made)


def _running(arena: Arena) -> int:
    lines = arena.ledger.lines()
    return sum(line.event == "start" for line in lines) - sum(line.event == "end" for line in lines)


def _no_extra_runs(arena: Arena) -> None:
    """Nobody was killed, so every job begins exactly once."""
    begun = [line.job for line in arena.ledger.lines() if line.event == "start"]
    if extra := len(begun) - len(set(begun)):
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
