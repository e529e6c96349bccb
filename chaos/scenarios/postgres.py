"""A PostgreSQL server that is restarted, ends its connections, is away for longer than a lease, or has few to give."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from chaos.arena import Arena
from chaos.checker import UNREACHABLE
from chaos.ledger import Line
from chaos.place import Place
from chaos.report import Report
from chaos.scenarios import Size, scenario
from chaos.scenarios.processes import PROCESSES
from tests import pgbouncer
from tests.postgres import PostgresServer, StopMode

ONLY = ("postgres",)
TERMINATE = """
    SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (
        SELECT pid FROM pg_stat_activity WHERE application_name = 'duly' ORDER BY random() LIMIT %s
    ) AS chosen
"""


def server_of(place: Place) -> PostgresServer:
    """The server that is ours to stop."""
    assert place.server is not None
    return place.server


def without_pgbouncer() -> str | None:
    """Says so if it is not installed."""
    return None if pgbouncer.program() else "pgbouncer is not installed (Debian: apt-get install pgbouncer)"


def replace(arena: Arena) -> None:
    """End a worker, not the first one, and start another."""
    arena.tend()
    arena.kill(arena.chance.choice(arena.workers[1:]))
    arena.start_soon()


@contextmanager
def terminating(arena: Arena, rate: float) -> Iterator[Callable[[], int]]:
    """End connections to the server while this lasts, `rate` per second. Yields what tells how many there were."""
    over = threading.Event()

    def loop() -> None:
        connection = None
        owed, before = 0.0, time.monotonic()
        while not over.wait(0.05):
            now = time.monotonic()
            owed, before = min(owed + (now - before) * rate, rate), now
            try:
                connection = connection or psycopg.connect(arena.direct_url, autocommit=True)
                row = connection.execute(TERMINATE, (int(owed),)).fetchone()
                owed -= int(owed)
                arena.faults["terminated connections"] += row[0] if row else 0
            except UNREACHABLE:
                connection = None
        if connection is not None:
            connection.close()

    thread = threading.Thread(target=loop, name="terminator", daemon=True)
    thread.start()
    try:
        yield lambda: arena.faults["terminated connections"]
    finally:
        over.set()
        thread.join(30)


@scenario(
    "restarts",
    "PostgreSQL restarted every few seconds, as in a crash and in good order; some workers killed too",
    databases=ONLY,
    short=Size(2_000, 4),
    long=Size(50_000, 60),
)
def restarts(place: Place, size: Size, seed: int) -> Report:
    """An outage robs nobody: whoever lives through it goes on with what it has."""
    server = server_of(place)
    with place.arena(seed=seed, size=size) as arena:
        arena.start(PROCESSES)
        arena.produce(seconds=6.0, share=0.002)
        arena.flow()
        while arena.goes_on(arena.faults["restarts"]):
            arena.pause(1.2)
            if arena.faults["restarts"] % 2:
                arena.kill(arena.chance.choice(arena.workers[1:]))
                arena.start()
            mode: StopMode = "fast" if arena.chance.random() < 0.25 else "immediate"
            server.stop(mode)
            arena.pause(0.3)
            server.start()
            arena.faults["restarts"] += 1
        arena.settle()
        return arena.report("restarts", place.database, log=place.log)


@scenario(
    "backends",
    "`pg_terminate_backend` many times a second; some workers killed too",
    databases=ONLY,
    short=Size(2_000, 150),
    long=Size(100_000, 3_000),
)
def backends(place: Place, size: Size, seed: int) -> Report:
    """Whoever finds its connection gone opens another, and nothing is done twice for that."""
    with place.arena(seed=seed, size=size) as arena:
        arena.start(PROCESSES)
        arena.produce(seconds=4.0, share=0.002)
        arena.flow()
        with terminating(arena, rate=20) as ended:
            while arena.goes_on(ended()):
                arena.pause(1.5)
                replace(arena)
        arena.settle()
        return arena.report("backends", place.database, log=place.log)


@scenario(
    "outage",
    "PostgreSQL away for 2 to 4 leases while handlers run on",
    databases=ONLY,
    short=Size(400, 1),
    long=Size(20_000, 12),
)
def outage(place: Place, size: Size, seed: int) -> Report:
    """When it is back, nobody who lived through it is robbed."""
    server = server_of(place)
    with place.arena(seed=seed, size=size) as arena:
        arena.start(PROCESSES)
        arena.facts.keepers = True
        through = 0
        arena.produce(seconds=5 * arena.lease, share=0.1, backlog=200, chunk=20)
        while arena.faults["outages"] < size.faults:
            wait_for_long_runs(arena)
            server.stop("immediate" if arena.chance.random() < 0.5 else "fast")
            stopped = time.monotonic()
            time.sleep(arena.lease * arena.chance.uniform(2.0, 2.4 if size.faults == 1 else 4.0))
            server.start()
            through += len(under_way(arena.ledger.lines(), stopped, time.monotonic()))
            arena.faults["outages"] += 1
            time.sleep(arena.lease)
        arena.settle()
        arena.faults["runs through an outage"] = through
        if not through:
            arena.problems.append("no run lasted from before an outage until after it: nothing is shown")
        return arena.report("outage", place.database, log=place.log, bites=False)


def wait_for_long_runs(arena: Arena, within: float = 30.0) -> None:
    """Wait until some runs have been under way for a while."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        now = time.monotonic()
        if len(under_way(arena.ledger.lines(), now - 0.5, now)) >= 2 * PROCESSES:
            return
        time.sleep(0.2)
    raise TimeoutError(f"no long runs within {within:.0f} s")


def under_way(lines: list[Line], since: float, until: float) -> set[tuple[str, int]]:
    """The runs that began before `since` and were not over by `until`."""
    begun = {(line.job, line.token) for line in lines if line.event == "start" and line.at < since}
    return begun - {(line.job, line.token) for line in lines if line.event in ("end", "left") and line.at <= until}


@scenario(
    "pgbouncer",
    "everything through PgBouncer in transaction mode, which is itself restarted; workers killed",
    databases=ONLY,
    short=Size(2_000, 3),
    long=Size(50_000, 40),
    needs=without_pgbouncer,
)
def through_pgbouncer(place: Place, size: Size, seed: int) -> Report:
    """Statements of one connection are given to whichever server connection is free."""
    with pgbouncer.restartable(place.url, "transaction", 4) as pooler, place.arena(seed=seed, size=size) as arena:
        arena.use(pooler.url)
        arena.start(PROCESSES)
        arena.produce(seconds=2.0, share=0.01)
        arena.flow()
        while arena.goes_on(arena.faults["pooler restarts"]):
            arena.pause(0.8)
            replace(arena)
            arena.pause(0.8)
            pooler.stop()
            arena.pause(0.3)
            pooler.start()
            arena.faults["pooler restarts"] += 1
        arena.settle()
        return arena.report("pgbouncer", place.database, log=place.log)


@scenario(
    "pool-of-one",
    "a pool of one connection, handlers that enqueue by it, ended connections, workers killed",
    databases=ONLY,
    short=Size(2_000, 60),
    long=Size(50_000, 1_000),
)
def pool_of_one(place: Place, size: Size, seed: int) -> Report:
    """What a worker needs for itself it keeps apart (to claim, to settle, to renew, to listen); all else shares one."""
    with place.arena(seed=seed, size=size, pool=1) as arena:
        arena.start(PROCESSES)
        arena.produce(seconds=0.5, share=0.02, tasks=("work", "awork", "more"))
        arena.flow()
        with terminating(arena, rate=10) as ended:
            while arena.goes_on(ended()):
                arena.pause(1.5)
                replace(arena)
        arena.settle()
        return arena.report("pool-of-one", place.database, log=place.log)


@scenario(
    "one-connection",
    "one server connection for everybody, by PgBouncer; handlers that enqueue; workers killed",
    databases=ONLY,
    short=Size(1_000, 4),
    long=Size(20_000, 60),
    needs=without_pgbouncer,
)
def one_connection(place: Place, size: Size, seed: int) -> Report:
    """Nobody may wait for another connection while holding the only one."""
    with pgbouncer.restartable(place.url, "transaction", 1) as pooler, place.arena(seed=seed, size=size) as arena:
        arena.use(pooler.url)
        arena.start(PROCESSES)
        arena.produce(seconds=0.5, share=0.02, tasks=("work", "awork", "more"))
        arena.flow()
        while arena.goes_on(arena.faults["kills"]):
            arena.pause(1.0)
            replace(arena)
        arena.settle()
        return arena.report("one-connection", place.database, log=place.log)
