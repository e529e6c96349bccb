"""What may be enqueued: how many jobs may wait in a queue or for a tenant, and how many a tenant may enqueue in a time.

Asked before every enqueue, so most of the time it must cost nothing: which queues and tenants have such limits is read
every few seconds, and a count that left room is trusted for a while. So a cap on what waits may be exceeded by what
several processes enqueue within a second. A quota per minute or day is exact.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta

from duly.domain.durations import human
from duly.domain.errors import QueueFull, QuotaExceeded
from duly.domain.limits import QUOTAS, Gate, Limit, Rate
from duly.store import ops_limits
from duly.store.call import Call, Op
from duly.store.database import Database

READ_EVERY = 2.0
TRUST = 1.0


@dataclass(slots=True)
class _Budget:
    """How many more may be enqueued before the next count."""

    left: int
    until: float


class Caps:
    """The limits on enqueuing, as last read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._limits: dict[Gate, Limit] = {}
        self._budgets: dict[Gate, _Budget] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    @property
    def stale(self) -> bool:
        """Whether the next check asks the database."""
        return bool(self._limits) or time.monotonic() - self._read_at > READ_EVERY

    def forget(self) -> None:
        """Something has changed: read before the next enqueue."""
        self._read_at = float("-inf")
        self._budgets.clear()

    def check(self, queue: str, tenant: str, n: int = 1) -> None:
        """Refuse, by an error, what is too much. What is let pass counts for the tenant's quotas."""
        if self.check_waiting(queue, tenant, n):
            self._database.write(lambda: spend(tenant, n))

    def check_waiting(self, queue: str, tenant: str, n: int) -> bool:
        """Refuse what would wait too much. Returns whether there are quotas too, which must be spent."""
        if time.monotonic() - self._read_at > READ_EVERY:
            self._read()
        if not self._limits:
            return False
        for gate in (("queue", queue), ("tenant", tenant)):
            limit = self._limits.get(gate)
            if limit is not None and limit.says.most_waiting is not None:
                self._check_waiting(gate, limit.says.most_waiting, n)
        return any((scope, tenant) in self._limits for scope in QUOTAS)

    def _read(self) -> None:
        limits = self._database.read(ops_limits.limits)
        wanted = {each.gate: each for each in limits if each.says.most_waiting is not None or each.says.refuses}
        with self._lock:
            self._limits, self._read_at = wanted, time.monotonic()

    def _check_waiting(self, gate: Gate, most: int, n: int) -> None:
        now = time.monotonic()
        with self._lock:
            budget = self._budgets.get(gate)
            if budget is not None and now < budget.until and budget.left >= n:
                budget.left -= n
                return
        waiting = self._database.read(lambda: _count(gate, most))
        if waiting + n > most:
            raise _full(gate, waiting, most, n)
        with self._lock:
            self._budgets[gate] = _Budget((most - waiting - n) // 4, now + TRUST)


def _full(gate: Gate, waiting: int, most: int, n: int) -> QueueFull | QuotaExceeded:
    scope, name = gate
    much = f"{n} jobs" if n > 1 else "a job"
    if scope == "queue":
        return QueueFull(
            f"queue {name!r} holds {waiting} waiting jobs of at most {most}, and {much} would be too many. "
            f"Enqueue later, start more workers, or: duly limits set --queue {name} --most-waiting N"
        )
    return QuotaExceeded(
        f"tenant {name!r} has {waiting} waiting jobs of at most {most}, and {much} would be too many. "
        f"Enqueue later, or: duly quota {name} --waiting N"
    )


def _count(gate: Gate, most: int) -> Op[int]:
    scope, name = gate
    rows = yield Call(f"count_waiting_{scope}", {"name": name, "most": most})
    return int(str(rows[0][0]))


def spend(tenant: str, n: int) -> Op[None]:
    """Take what is enqueued off the quotas of a tenant, all or none."""
    for scope in sorted(QUOTAS):
        rows = yield Call("lock_quota", {"scope": scope, "name": tenant})
        if not rows:
            continue
        rate_n, rate_us, spent_until, used, now = (int(str(value)) for value in rows[0])
        rate = Rate(rate_n, rate_us)
        room = rate.room(spent_until, used, now)
        if room < n:
            wait = timedelta(microseconds=rate.window(now) + rate_us - now)
            raise QuotaExceeded(
                f"tenant {tenant!r} may enqueue {rate_n} jobs per {scope}, and {rate_n - room} are used. "
                f"The next {scope} begins in {human(wait)}; to raise it: duly quota {tenant} --per-{scope} N",
                retry_after=wait,
            )
    for scope in sorted(QUOTAS):
        yield Call("spend_quota", {"scope": scope, "name": tenant, "n": n})
