"""What a check-up asks of the database, as values. It changes nothing; mending is in `ops_repair`."""

from __future__ import annotations

from typing import NamedTuple

from duly.domain.records import Counts
from duly.domain.states import State
from duly.store.call import Call, Dialect, Op, Row, Value

MOST = 1_000
"""So many at most are listed of what is wrong in one way; a repair mends these, and the next look finds the rest."""
EVERYTHING = 2**62


LOWEST = {Dialect.SQLITE: "", Dialect.POSTGRES: "00000000-0000-0000-0000-000000000000"}
"""No id comes before this."""


class Server(NamedTuple):
    """A PostgreSQL server as it is. The order is that of the statement's columns."""

    version: str
    version_number: int
    clock_us: int
    standby: bool
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    autovacuum: str
    max_connections: int
    connections: int
    hidden: int
    """Sessions of other users, which this one may not see into."""


class Session(NamedTuple):
    """A session that is in a transaction."""

    pid: int
    application: str
    user: str
    state: str
    open_us: int
    idle_us: int
    query: str


class Slot(NamedTuple):
    """A replication slot; ages in transactions."""

    name: str
    kind: str
    active: bool
    xmin_age: int
    catalog_xmin_age: int
    kept_bytes: int


class Table(NamedTuple):
    """One of our tables on PostgreSQL."""

    name: str
    live: int
    dead: int
    vacuumed_us: int | None
    """How long ago; None if it never was."""
    bytes: int
    index_bytes: int
    options: str


class Misplaced(NamedTuple):
    """Jobs that are not in one place, `MOST` at most in each way."""

    looked_at: int
    """Among so many jobs those that are nowhere were looked for."""
    is_all: bool
    """Whether these are all that there are."""
    nowhere: list[str]
    twice: list[str]
    jobless: list[str]
    """Named by a place, and not there."""


class Parked(NamedTuple):
    """Jobs of one task that are set aside for one reason."""

    reason: str
    task: str
    jobs: int
    oldest_us: int


class Disabled(NamedTuple):
    """Recurring jobs that duly disabled for one reason; one of them by name."""

    by: str
    reason: str
    jobs: int
    task: str
    key: str


class Partial(NamedTuple):
    """A recurring job of whose three rows some are missing."""

    id: str
    job: bool
    schedule: bool
    standing: bool


def server() -> Op[Server]:
    """The server, its clock and its settings."""
    rows = yield Call("doctor_server")
    return Server._make(rows[0])


def sessions() -> Op[list[Session]]:
    """Sessions that have been in one transaction for more than a second, the oldest first."""
    return [Session._make(row) for row in (yield Call("doctor_sessions", {"n": 20}))]


def prepared() -> Op[list[tuple[str, str, int]]]:
    """Transactions that were prepared and not ended: name, owner, age."""
    rows = yield Call("doctor_prepared", {"n": 20})
    return [(str(row[0]), str(row[1]), _int(row[2])) for row in rows]


def slots() -> Op[list[Slot]]:
    """Replication slots."""
    return [Slot._make(row) for row in (yield Call("doctor_slots", {"n": 100}))]


def tables(schema: str) -> Op[list[Table]]:
    """Our tables."""
    return [Table._make(row) for row in (yield Call("doctor_tables", {"schema": schema}))]


def indexes(schema: str) -> Op[dict[str, bool]]:
    """The indexes that there are, and whether each can be used."""
    return {str(row[0]): bool(row[1]) for row in (yield Call("doctor_indexes", {"schema": schema}))}


def word(name: str) -> Op[list[str]]:
    """The first column of a statement without parameters."""
    return [str(row[0]) for row in (yield Call(name))]


def some_ids(name: str, **params: Value) -> Op[list[str]]:
    """The ids that a statement finds, `MOST` at most."""
    return [str(row[0]) for row in (yield Call(name, {"n": MOST, **params}))]


def misplaced(dialect: Dialect, most: int) -> Op[Misplaced]:
    """Look for jobs that are not in one place. Of those that are nowhere, among the newest `most` jobs.

    For `database.read_as_planned`: on PostgreSQL it says how it wants to be planned.
    """
    newest = (yield Call("doctor_newest", {"before": most - 1})) if most < EVERYTHING else ()
    looked_at = most if newest else _int((yield Call("doctor_some_jobs", {"n": most}))[0][0])
    is_all = len(newest) <= 1
    first = LOWEST[dialect] if is_all else str(newest[0][0])
    twice: list[str] = []
    jobless: list[str] = []
    if not is_all:
        twice += yield from some_ids("doctor_twice_before", first=first)
        jobless += yield from some_ids("doctor_jobless_before", first=first)
    if dialect is Dialect.POSTGRES:
        yield Call("walk_in_order")
    nowhere = yield from some_ids("doctor_nowhere", first=first)
    twice += yield from some_ids("doctor_twice", first=first)
    jobless += yield from some_ids("doctor_jobless", first=first)
    return Misplaced(looked_at, is_all, nowhere, _once(twice), _once(jobless))


def to_run(dialect: Dialect) -> Op[Counts]:
    """What waits, by lane, and what is scheduled; nothing else is counted. For `database.read_as_planned`."""
    scheduled = yield Call("count_scheduled")
    if dialect is Dialect.POSTGRES:
        yield Call("scan_freely")
    waiting = yield Call("doctor_waiting")
    return Counts(waiting=[_lane(row) for row in waiting], scheduled=[_lane(row) for row in scheduled])


def lapsed(grace_us: int) -> Op[tuple[int, int]]:
    """Runs whose lease passed longer ago than `grace_us`: how many, and for how long at most."""
    rows = yield Call("doctor_lapsed", {"grace_us": grace_us})
    return _int(rows[0][0]), _int(rows[0][1])


def unpromoted(late_us: int) -> Op[tuple[int, int, int]]:
    """Jobs due for longer than `late_us` that are still scheduled: how many, how late, how many of them recur."""
    rows = yield Call("doctor_unpromoted", {"late_us": late_us})
    return _int(rows[0][0]), _int(rows[0][1]), _int(rows[0][2])


def parked() -> Op[list[Parked]]:
    """Jobs that are set aside."""
    return [Parked._make(row) for row in (yield Call("doctor_parked", {"n": 50}))]


def dead_keys() -> Op[list[tuple[str, str]]]:
    """Unique keys, by tenant and key, whose holder is gone or has ended."""
    return [(str(row[0]), str(row[1])) for row in (yield Call("doctor_dead_keys", {"n": MOST}))]


def disabled() -> Op[list[Disabled]]:
    """Recurring jobs that duly itself disabled."""
    return [Disabled._make(map(_known, row)) for row in (yield Call("doctor_disabled", {"n": 20}))]


def partial() -> Op[list[Partial]]:
    """Recurring jobs of whose rows one is missing."""
    rows = yield Call("doctor_partial", {"n": MOST})
    return [Partial(str(row[0]), bool(row[1]), bool(row[2]), bool(row[3])) for row in rows]


def overdue(state: State, keep_us: int, most: int) -> Op[tuple[int, int]]:
    """Finished jobs older than `keep_us`: how many, counted no further than `most`, and how old the oldest is."""
    rows = yield Call("doctor_overdue", {"state": state, "keep_us": keep_us, "n": most})
    return _int(rows[0][0]), _int(rows[0][1])


def old_rollups(keep_us: int) -> Op[int]:
    """Counts older than `keep_us`."""
    rows = yield Call("doctor_old_rollups", {"keep_us": keep_us})
    return _int(rows[0][0])


def _once(ids: list[str]) -> list[str]:
    return list(dict.fromkeys(ids))[:MOST]


def _lane(row: Row) -> tuple[str, str, str, int, int]:
    queue, tenant, task, jobs, first = row
    return str(queue), str(tenant), str(task), _int(jobs), _int(first)


def _int(value: object) -> int:
    return 0 if value is None else int(str(value))


def _known(value: object) -> object:
    return "" if value is None else value
