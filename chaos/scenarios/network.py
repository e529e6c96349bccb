"""A network that cuts connections at the worst moments, or swallows everything without a word."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from chaos.arena import Arena, WorkerProcess
from chaos.checker import connect
from chaos.hosts import Host, hosts, missing
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
        while arena.goes_on(sum(between.tell("count").values())):
            arena.pause(1.5)
            replace(arena)
        found = between.tell("heal")
        for moment in (*MOMENTS, IDLE):
            n = arena.faults[f"cuts {moment}"] = sum(n for how, n in found.items() if how.startswith(moment))
            if n < size.faults // 50:
                arena.problems.append(f"only {n} connections were cut {moment}")
        arena.settle()
        return arena.report("cuts", place.database, log=place.log)


LONG_LEASE = 5.0
HEARS_WITHIN = 30.0
SOON = 3.0


@scenario(
    "blackhole",
    "the network swallows everything without a reset, one way or both, for one worker or all, for longer than a lease",
    databases=ONLY,
    short=Size(1_000, 2),
    long=Size(20_000, 24),
    needs=missing,
)
def blackhole(place: Place, size: Size, seed: int) -> Report:
    """Who is cut off alone stops before others take over; where all were, nobody is robbed; all recover."""
    server = server_of(place)
    with hosts(3) as machines:
        server.stop()
        server.settings["listen_addresses"] = ",".join(host.here for host in machines)
        with (server.data / "pg_hba.conf").open("a") as file:
            file.write("".join(f"host all all {host.there}/32 trust\n" for host in machines))
        server.start()
        settings = {"lease": LONG_LEASE}
        with place.arena(seed=seed, size=size, settings=settings) as arena:
            arena.facts.keepers = True
            workers = [_start_on(arena, host) for host in machines]
            arena.produce(seconds=2 * LONG_LEASE, share=0.02, backlog=400, chunk=50, tasks=("work", "awork", "heed"))
            arena.flow()
            n = 0
            while arena.goes_on(n):
                arena.flow()
                if n % 3 == 1:
                    _cut_off_all(arena, machines)
                else:
                    i = arena.chance.randrange(len(machines))
                    _cut_off(arena, machines[i], workers[i], both=n % 2 == 0, long=n % 12 == 6)
                n += 1
            arena.settle()
            return arena.report("blackhole", place.database, log=place.log)


def _start_on(arena: Arena, host: Host) -> WorkerProcess:
    """Start a worker on a host."""
    arena.url = f"postgresql://postgres@{host.here}/postgres?sslmode=disable&gssencmode=disable"
    arena.command = host.command
    return arena.start()[0]


def _cut_off(arena: Arena, host: Host, process: WorkerProcess, *, both: bool, long: bool) -> None:
    """Cut one worker off for longer than its lease, both ways or one, and see that it stops in time and comes back."""
    over = arena.disturbing(process)
    way = arena.chance.random() < 0.5
    host.cut(to_server=both or way, from_server=both or not way)
    cut_at = time.monotonic()
    time.sleep(0.5)
    held = _leases(arena, process)
    time.sleep(35.0 if long else arena.lease * arena.chance.uniform(1.3, 1.8))
    host.heal()
    over()
    healed_at = time.monotonic()
    arena.faults["cut off both ways" if both else "cut off one way"] += 1
    ends = {(line.job, line.token): line.at for line in arena.ledger.lines() if line.event in ("end", "left")}
    late = [run for run, until in held.items() if not ends.get(run, cut_at) <= until]
    arena.faults["leases seen through"] += sum(ends.get(run, cut_at) > cut_at for run in held)
    if late:
        arena.problems.append(f"{len(late)} handlers were not told before their lease ended, such as {late[0]}")
    while not any(line.pid == process.pid and line.at > healed_at for line in arena.ledger.lines()):
        if time.monotonic() - healed_at > HEARS_WITHIN:
            arena.problems.append(f"a worker that was cut off did nothing within {HEARS_WITHIN:.0f} s of being healed")
            break
        time.sleep(0.1)


def _leases(arena: Arena, process: WorkerProcess) -> dict[tuple[str, int], float]:
    """Until when a worker has leases, for runs that stop when they are told, on the ledger's clock."""
    begun = {
        (line.job, line.token) for line in arena.ledger.lines() if line.event == "start" and line.pid == process.pid
    }
    with closing(connect(arena.direct_url)) as connection:
        rows = connection.execute("SELECT id, token, leased_until FROM duly.running WHERE task IN ('awork', 'heed')")
        ahead = time.time() - time.monotonic()
        found = {(str(job), token): until / 1e6 - ahead for job, token, until in rows}
    return {run: until for run, until in found.items() if run in begun}


def _cut_off_all(arena: Arena, machines: Sequence[Host]) -> None:
    """Cut everybody off for longer than a lease. Nobody is declared disturbed: when it ends, all go on as before."""
    for host in machines:
        host.cut()
    time.sleep(arena.lease * arena.chance.uniform(1.5, 2.5))
    for host in machines:
        host.heal()
    arena.faults["all cut off"] += 1
    time.sleep(arena.lease)
