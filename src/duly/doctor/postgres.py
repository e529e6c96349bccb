"""The PostgreSQL server: what keeps dead rows from being removed, what is missing, what runs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from duly.doctor.finding import Area, Finding
from duly.doctor.indexes import indexes
from duly.doctor.words import counted, size, span
from duly.domain.ids import uuid7
from duly.store import migrate, ops_doctor
from duly.store.call import Dialect
from duly.store.ops_doctor import Server, Session, Slot, Table
from duly.store.postgres import PostgresDatabase

if TYPE_CHECKING:
    from duly.app import Duly

AREA = Area("database")
OLDEST_SUPPORTED = 150_000
LONG_TRANSACTION_US = 300_000_000
LONG_IDLE_US = 60_000_000
OLD_XMIN = 1_000_000
MUCH_WAL = 1 << 30
FULL = 0.8
HOT = ("waiting", "running", "scheduled", "recurring")
MANY_DEAD = 20_000


def check(app: Duly, database: PostgresDatabase) -> Iterator[Finding]:
    """Look at the server and at our tables in it."""
    server, schema = database.read(ops_doctor.server), database.schema
    yield version(server)
    yield connections(server)
    yield from durability(server)
    if database.pooled:
        yield pooled(woken=_is_woken(app))
    yield from transactions(database.read(ops_doctor.sessions), server.hidden)
    yield from prepared(database.read(ops_doctor.prepared))
    yield from slots(database.read(ops_doctor.slots))
    tables = database.read(lambda: ops_doctor.tables(schema))
    yield from vacuum(tables, server.autovacuum, schema)
    yield sizes(tables)
    there = database.read(lambda: ops_doctor.indexes(schema))
    in_schema = {
        name: statement and statement.replace("duly.", f"{schema}.").replace("INDEX", "INDEX CONCURRENTLY", 1)
        for name, statement in migrate.indexes(Dialect.POSTGRES).items()
    }
    yield from indexes(there, in_schema, within=f"{schema}.")


def _is_woken(app: Duly) -> bool:
    """Whether a LISTEN reaches us: the waker tries it out."""
    waker = app.store.waker(uuid7())
    try:
        waker.wait(0.0)
        return waker.polls_every > 1
    finally:
        waker.close()
        waker.dispose()


def version(server: Server) -> Finding:
    """Whether the server is one that duly is tried on, and can be written."""
    if server.standby:
        return AREA.error(
            "server",
            f"PostgreSQL {server.version} is a standby and cannot be written",
            "give duly the address of the primary",
            version=server.version,
        )
    if server.version_number < OLDEST_SUPPORTED:
        return AREA.warning(
            "server",
            f"PostgreSQL {server.version} is older than the versions duly is tried on",
            "upgrade to PostgreSQL 15 or newer",
            version=server.version,
        )
    return AREA.ok("server", f"PostgreSQL {server.version}", version=server.version)


def connections(server: Server) -> Finding:
    """Whether the next worker will find a connection."""
    used, most = server.connections, server.max_connections
    what = f"{used:,} of {most:,} connections are in use"
    if used > FULL * most:
        step = "raise max_connections, or put PgBouncer between; a worker needs about 5"
        return AREA.warning("connections", what, step, used=used, max_connections=most)
    return AREA.ok("connections", what, used=used, max_connections=most)


def durability(server: Server) -> Iterator[Finding]:
    """What a crash of the server would cost."""
    for name, value, cost in (
        ("fsync", server.fsync, "a crash of the machine may damage the whole database"),
        ("full_page_writes", server.full_page_writes, "a crash of the machine may damage the database"),
        ("synchronous_commit", server.synchronous_commit, "a crash of the server may take the last commits"),
    ):
        if value == "off":
            yield AREA.info("durability", f"{name} is off: {cost}", f"set {name} = on if that matters", setting=name)


def pooled(*, woken: bool) -> Finding:
    """What a pooler between means."""
    if woken:
        return AREA.info("pooler", "a pooler in session mode is between: workers are woken through it", mode="session")
    return AREA.info(
        "pooler",
        "a pooler in transaction mode is between: nothing is prepared, and workers look every 200 ms instead of "
        "being woken",
        "to have them woken, give the workers the server's own address",
        mode="transaction",
    )


def transactions(sessions: Sequence[Session], hidden: int) -> Iterator[Finding]:
    """Whether a transaction left open keeps dead rows from being removed."""
    found = 0
    for each in sessions:
        idle = each.state.startswith("idle in transaction") and each.idle_us > LONG_IDLE_US
        if not idle and each.open_us <= LONG_TRANSACTION_US:
            continue
        found += 1
        doing = f"is idle in it for {span(each.idle_us)}" if idle else "is at work in it"
        yield AREA.warning(
            "transactions",
            f"session {each.pid} ({each.application or each.user or 'unnamed'}) has had a transaction open for "
            f"{span(each.open_us)} and {doing}: no dead row of any table is removed meanwhile",
            f"end it: SELECT pg_terminate_backend({each.pid}); and set idle_in_transaction_session_timeout",
            pid=each.pid,
            state=each.state,
            open_seconds=each.open_us // 1_000_000,
            idle_seconds=each.idle_us // 1_000_000,
            query=each.query,
        )
    if hidden:
        yield AREA.info(
            "transactions",
            f"{counted(hidden, 'session')} of other users cannot be seen into",
            "to see them: GRANT pg_read_all_stats TO this user",
            hidden=hidden,
        )
    if not found:
        yield AREA.ok("transactions", "no transaction is open for long", open=len(sessions))


def prepared(found: Sequence[tuple[str, str, int]]) -> Iterator[Finding]:
    """Whether a prepared transaction was forgotten."""
    for name, owner, age_us in found:
        if age_us > LONG_TRANSACTION_US:
            yield AREA.warning(
                "prepared",
                f"transaction {name!r} of {owner} was prepared {span(age_us)} ago and never ended: it holds its locks, "
                "and no dead row is removed",
                f"COMMIT PREPARED '{name}' or ROLLBACK PREPARED '{name}'",
                gid=name,
                age_seconds=age_us // 1_000_000,
            )
    if not any(age_us > LONG_TRANSACTION_US for _, _, age_us in found):
        yield AREA.ok("prepared", "no prepared transaction was forgotten", count=len(found))


def slots(found: Sequence[Slot]) -> Iterator[Finding]:
    """Whether a replication slot holds back vacuum, or the log."""
    wrong = 0
    for slot in found:
        evidence = {
            "slot": slot.name,
            "active": slot.active,
            "xmin_age": slot.xmin_age,
            "catalog_xmin_age": slot.catalog_xmin_age,
            "kept_bytes": slot.kept_bytes,
        }
        step = f"let its reader catch up, or drop it: SELECT pg_drop_replication_slot('{slot.name}')"
        if slot.xmin_age > OLD_XMIN:
            wrong += 1
            yield AREA.warning(
                "slots",
                f"replication slot {slot.name} holds back vacuum by {slot.xmin_age:,} transactions",
                step,
                **evidence,
            )
        elif not slot.active and slot.kept_bytes > MUCH_WAL:
            wrong += 1
            kept = size(slot.kept_bytes)
            yield AREA.warning("slots", f"nobody reads replication slot {slot.name}: it keeps {kept}", step, **evidence)
        elif not slot.active:
            yield AREA.info("slots", f"nobody reads replication slot {slot.name}", step, **evidence)
    if not wrong:
        yield AREA.ok("slots", f"no replication slot holds back vacuum ({len(found)} there)", count=len(found))


def vacuum(tables: Sequence[Table], autovacuum: str, schema: str) -> Iterator[Finding]:
    """Whether the tables that change most are cleaned."""
    wrong = 0
    off = [table.name for table in tables if "autovacuum_enabled=false" in table.options.replace("off", "false")]
    if autovacuum == "off":
        wrong += 1
        yield AREA.warning(
            "autovacuum", "autovacuum is off: dead rows pile up, and claims walk over them", "set autovacuum = on"
        )
    for name in off:
        wrong += 1
        yield AREA.warning(
            "autovacuum",
            f"autovacuum is off for table {name}",
            f"ALTER TABLE {schema}.{name} RESET (autovacuum_enabled)",
            table=name,
        )
    for table in tables:
        if table.name in HOT and table.dead > MANY_DEAD + table.live:
            wrong += 1
            last = "never vacuumed" if table.vacuumed_us is None else f"last vacuumed {span(table.vacuumed_us)} ago"
            yield AREA.warning(
                "dead_rows",
                f"table {table.name} has {table.dead:,} dead rows beside {table.live:,} live ones, {last}",
                f"look for what holds them back (above); then VACUUM {schema}.{table.name}",
                table=table.name,
                dead=table.dead,
                live=table.live,
                vacuumed_seconds=None if table.vacuumed_us is None else table.vacuumed_us // 1_000_000,
            )
    if not wrong:
        dead = {table.name: table.dead for table in tables if table.name in HOT}
        yield AREA.ok("dead_rows", f"{counted(sum(dead.values()), 'dead row')} in the tables that change most", **dead)


def sizes(tables: Sequence[Table]) -> Finding:
    """How large our tables are."""
    total = sum(table.bytes + table.index_bytes for table in tables)
    largest = sorted(tables, key=lambda each: each.bytes + each.index_bytes, reverse=True)[:3]
    named = ", ".join(f"{table.name} {size(table.bytes + table.index_bytes)}" for table in largest)
    each = {table.name: {"bytes": table.bytes, "index_bytes": table.index_bytes} for table in tables}
    return AREA.ok("sizes", f"{size(total)} in all: {named}", bytes=total, tables=each)
