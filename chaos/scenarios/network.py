"""A network that cuts connections at the worst moments, or swallows everything without a word."""

from __future__ import annotations

from chaos.place import Place
from chaos.proxy import IDLE, MOMENTS, proxy
from chaos.report import Report
from chaos.scenarios import Size, scenario
from chaos.scenarios.postgres import ONLY, replace, server_of
from chaos.scenarios.processes import PROCESSES


@scenario(
    "cuts",
    "connections cut before a request, before its reply and within it, by reset and in good order; workers killed",
    databases=ONLY,
    short=Size(2_000, 400),
    long=Size(100_000, 8_000),
)
def cuts(place: Place, size: Size, seed: int) -> Report:
    """Whether an operation was done whose reply was lost, nobody knows: to repeat it must be safe, or not needed."""
    socket = server_of(place).directory / ".s.PGSQL.5432"
    with proxy(socket, seed=seed, share=0.1, idle_every=0.05) as between, place.arena(seed=seed, size=size) as arena:
        arena.use(f"postgresql://postgres@127.0.0.1:{between.port}/postgres?sslmode=disable&gssencmode=disable")
        arena.start(PROCESSES)
        arena.produce(seconds=2.0, share=0.005)
        arena.flow()
        between.tell("cut")
        while sum(between.tell("count").values()) < size.faults:
            arena.pause(1.5)
            replace(arena)
        found = between.tell("heal")
        for moment in (*MOMENTS, IDLE):
            n = arena.faults[f"cuts {moment}"] = sum(n for how, n in found.items() if how.startswith(moment))
            if n < size.faults // 50:
                arena.problems.append(f"only {n} connections were cut {moment}")
        arena.settle()
        return arena.report("cuts", place.database, log=place.log)
