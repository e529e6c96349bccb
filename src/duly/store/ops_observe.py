"""How things stand, as values: for metrics, alerts and `duly top`. Changes nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from duly.store.call import Call, Dialect, Op, Row, Rows

PRIORITIES = ("0", "1-24", "25-49", "50-74", "75-99", "100")
WAITS_US = (
    5_000, 20_000, 100_000, 500_000, 1_000_000, 5_000_000, 15_000_000, 60_000_000, 300_000_000, 1_800_000_000,
    7_200_000_000,
)  # fmt: skip
"""Where the buckets of waits end; the last one has no end."""


class Key(NamedTuple):
    """A queue, a tenant and a task."""

    queue: str
    tenant: str
    task: str


class Waiting(NamedTuple):
    """What waits in one lane."""

    jobs: int
    oldest_at: int
    recurring: int
    oldest_recurring_at: int | None
    by_priority: tuple[int, ...]

    def plus(self, other: Waiting) -> Waiting:
        """Both together."""
        recurring = [at for at in (self.oldest_recurring_at, other.oldest_recurring_at) if at is not None]
        return Waiting(
            self.jobs + other.jobs,
            min(self.oldest_at, other.oldest_at),
            self.recurring + other.recurring,
            min(recurring, default=None),
            tuple(one + another for one, another in zip(self.by_priority, other.by_priority, strict=True)),
        )


class Group(NamedTuple):
    """Some jobs, and a time that tells of the one that has been so for longest."""

    jobs: int
    since: int


class Ran(NamedTuple):
    """What ran in some minutes. The order is that of the statement's columns."""

    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    crashed: int = 0
    recovered: int = 0
    ran_us: int = 0
    waited_us: int = 0
    waits: tuple[int, ...] = (0,) * 12

    def plus(self, other: Ran, sign: int = 1) -> Ran:
        """Both together; with the sign -1, what this has more."""
        numbers = [one + sign * another for one, another in zip(self[:9], other[:9], strict=True)]
        waits = tuple(one + sign * another for one, another in zip(self.waits, other.waits, strict=True))
        return Ran._make([*numbers, waits])

    @property
    def failed_ratio(self) -> float:
        """Which part of the runs failed or crashed."""
        return (self.failed + self.crashed) / self.runs if self.runs else 0.0

    @property
    def average_wait(self) -> float:
        """How long they waited for a worker on average, in seconds."""
        return self.waited_us / self.runs / 1e6 if self.runs else 0.0

    def wait_quantile(self, part: float) -> float:
        """How long the quickest such part of the runs waited at most, in seconds, by interpolation in the bucket."""
        total = sum(self.waits)
        seen, lowest = 0, 0
        for n, highest in zip(self.waits, (*WAITS_US, None), strict=True):
            if n and seen + n >= part * total:
                if highest is None:
                    return lowest / 1e6
                return (lowest + (highest - lowest) * (part * total - seen) / n) / 1e6
            seen += n
            lowest = highest or lowest
        return 0.0


class Standing(NamedTuple):
    """How many jobs stand where, by lane, at one moment."""

    now: int
    waiting: dict[Key, Waiting]
    running: dict[Key, Group]
    scheduled: dict[Key, int]
    overdue: dict[Key, Group]
    """What recurs and should have been put into its lane by now."""
    parked: dict[str, int]


def standing(dialect: Dialect, *, scheduled: bool = True) -> Op[Standing]:
    """Count the jobs that have not ended; without `scheduled`, not those whose time has not come."""
    if dialect is Dialect.POSTGRES:
        yield Call("scan_freely")
    [(now,)] = yield Call("observe_now")
    waiting = yield Call("observe_waiting")
    keyed = yield Call("observe_keyed")
    running = yield Call("observe_running")
    later: Rows = (yield Call("observe_scheduled")) if scheduled else ()
    overdue = yield Call("observe_overdue")
    parked = yield Call("observe_parked")
    return Standing(
        _int(now),
        _merged([*waiting, *keyed]),
        {_key(row): Group(_int(row[3]), _int(row[4])) for row in running},
        {_key(row): _int(row[3]) for row in later},
        {_key(row): Group(_int(row[3]), _int(row[4])) for row in overdue},
        {str(row[0]): _int(row[1]) for row in parked},
    )


def sum_minutes(from_at: int, until_at: int) -> Op[dict[Key, Ran]]:
    """What ran in some minutes, by lane."""
    rows = yield Call("sum_minutes", {"from_at": from_at, "until_at": until_at})
    return {_key(row): _ran(row[3:]) for row in rows}


def each_minute(from_at: int) -> Op[list[tuple[int, int, int, int]]]:
    """What ran in each minute since, all together: when it began, runs, those that succeeded, those that failed."""
    rows = yield Call("sum_each_minute", {"from_at": from_at})
    return [(_int(row[0]), _int(row[1]), _int(row[2]), _int(row[3])) for row in rows]


def poison(since_at: int) -> Op[dict[str, tuple[int, str]]]:
    """Tasks whose jobs took their workers with them since then: how many jobs, and the id of one."""
    found: dict[str, tuple[int, str]] = {}
    for name in ("observe_poison", "observe_poison_recurring"):
        for row in (yield Call(name, {"since_at": since_at})):
            before = found.get(str(row[0]), (0, ""))[0]
            found[str(row[0])] = (before + _int(row[1]), str(row[2]))
    return found


def longest(task: str, n: int = 5) -> Op[list[tuple[str, int]]]:
    """The jobs of a task that run longest, and since when."""
    rows = yield Call("observe_longest", {"task": task, "n": n})
    return [(str(row[0]), _int(row[1])) for row in rows]


def postgres_size() -> Op[tuple[int, int] | None]:
    """How large a PostgreSQL database is, and how much log is kept for a replica; None on a standby."""
    rows = yield Call("observe_size")
    return (_int(rows[0][0]), _int(rows[0][1] or 0)) if rows else None


def _key(row: Row) -> Key:
    return Key(str(row[0]), str(row[1]), str(row[2]))


def _merged(rows: Rows) -> dict[Key, Waiting]:
    """Suspects, and what waits for its key, belong to the lane of the others."""
    found: dict[Key, Waiting] = {}
    for row in rows:
        lane, before = _waiting(row), found.get(_key(row))
        found[_key(row)] = lane if before is None else before.plus(lane)
    return found


def _waiting(row: Row) -> Waiting:
    oldest = None if row[6] is None else _int(row[6])
    up_to = [0, *(_int(n) for n in row[7:12]), _int(row[3])]
    return Waiting(_int(row[3]), _int(row[4]), _int(row[5]), oldest, tuple(b - a for a, b in pairwise(up_to)))


def _ran(row: Row) -> Ran:
    return Ran._make([*(_int(n) for n in row[:9]), tuple(_int(n) for n in row[9:21])])


def _int(value: object) -> int:
    return int(value)  # type: ignore[call-overload, no-any-return]
