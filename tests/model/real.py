"""A real store that is driven in the words of the model, loses replies when told to, and shows everything it has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from unittest.mock import patch

from duly.domain.audit import Actor
from duly.domain.errors import Conflict, DatabaseUnavailable, RecurringJobNotFound
from duly.domain.limits import Gate, Says
from duly.domain.outcome import after_crash
from duly.domain.records import HOLD, Claimed, Filter, Lane, Lapsed, NewJob, ProcessIdentity, Settled
from duly.domain.recurring import NewRecurring
from duly.domain.states import State
from duly.maintenance.rescue import Deaths, rescue_dead, rescue_silent
from duly.store.call import Op
from duly.store.database import Database
from duly.store.opening import open_database
from duly.store.ops_keys import Freed
from duly.store.store import Store
from duly.testing import TestClock
from tests.model.facts import LANE_QUEUE, RunFact
from tests.model.work import CRASH_LIMIT
from tests.store.raw import Raw

R = TypeVar("R")
NO_JITTER = patch("duly.maintenance.rescue.random", SimpleNamespace(random=lambda: 0.5))
BOSS = Actor("boss", "python", True)
TABLES = (
    *("jobs", "scheduled", "waiting", "parked", "running", "ended", "runs", "rollups", "unique_keys", "gates"),
    *("keys", "admitted", "queues", "workers", "schedules", "recurring", "mirrors", "audit", "tenants"),
)


class Forgetful:
    """A database whose answer to the next write is lost after the commit: the store repeats it, or gives up."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.loses = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self, op: Callable[[], Op[R]], *, atomic: bool = True, again: bool = True) -> R:
        answer = self._database.write(op, atomic=atomic, again=again)
        if not self.loses:
            return answer
        self.loses = False
        if not again:
            raise DatabaseUnavailable("the connection was lost after the commit")
        return self._database.write(op, atomic=atomic, again=again)


class Real:
    """A store on one database, by a clock that the machine moves."""

    def __init__(self, raw: Raw, clock: TestClock) -> None:
        self.raw = raw
        self.clock = clock
        self.empty()
        self.database = Forgetful(open_database(raw.url, clock, synchronous="off", notify=False))
        self.store = Store(cast(Database, self.database))
        self.lapsed: list[Lapsed] = []

    def empty(self) -> None:
        statements = [f"DELETE FROM duly.{table}" for table in TABLES]
        for statement in [";".join(statements)] if self.raw.is_postgres else statements:
            self.raw.rows(statement)

    def close(self) -> None:
        self.store.close()

    # -- enqueue ----------------------------------------------------------------------------------------------

    def enqueue(self, new: NewJob) -> tuple[str, bool]:
        answer = self.store.enqueue(new)
        return answer.id, answer.created

    def enqueue_many(self, news: Sequence[NewJob]) -> list[tuple[str, bool]]:
        rows = [(new.id, new.args, new.unique_key, new.limit_key) for new in news]
        return [(each.id, each.created) for each in self.store.enqueue_many(news[0], rows)]

    # -- workers ----------------------------------------------------------------------------------------------

    def start_worker(self, worker_id: str) -> None:
        process = ProcessIdentity(
            host="here", boot_id="boot", pid_namespace="1", pid=int(worker_id[-4:], 16), process_started_at="1"
        )
        self.store.add_worker(
            worker_id, process, lease_us=1, queues=LANE_QUEUE, tasks="", slots=1, wake=None, version="1"
        )

    def look(self) -> None:
        self.store.gates.reopen()
        self.store.promote()
        self.store.spawn()
        for _ in range(5):
            if not self.store.gates.admit():
                break

    def claim(
        self,
        lanes: Sequence[Lane],
        n: int,
        worker_id: str,
        lease_us: int,
        gates: Sequence[Gate],
        suspect: bool,
        shares: Mapping[str, int] | None,
    ) -> list[tuple[str, int, int]]:
        try:
            jobs = self.store.claim(
                LANE_QUEUE,
                lanes,
                n,
                worker_id=worker_id,
                lease_us=lease_us,
                gates=gates,
                suspect=suspect,
                shares=shares,
            )
        except DatabaseUnavailable:
            return []
        return [(job.id, job.token, job.attempt) for job in jobs]

    def renew(self, pairs: Sequence[tuple[str, int]], lease_us: int) -> dict[str, bool | None]:
        return self.store.renew(pairs, lease_us)

    def settle(self, jobs: Sequence[Claimed], batch: Sequence[Settled], *, repeated: bool = False) -> set[str]:
        """As a worker's finisher does: those with a unique key one by one, recurring ones and the rest together."""
        accepted: set[str] = set()
        pairs = list(zip(jobs, batch, strict=True))
        recurring = [(job, each) for job, each in pairs if job.hold == HOLD["recurs"]]
        keyed = [(job, each) for job, each in pairs if job.hold in (HOLD["queued"], HOLD["live"])]
        plain = [(job, each) for job, each in pairs if job.hold in (HOLD["none"], HOLD["window"])]
        if plain:
            accepted |= self.store.settle([each for _, each in plain], repeated=repeated, freed=_freed(plain))
        if recurring:
            ended = self.store.end_recurring(
                [each for _, each in recurring], repeated=repeated, freed=_freed(recurring)
            )
            assert not ended.held, f"nobody else is here to hold {ended.held}"
            accepted |= set(ended.accepted)
        for job, each in keyed:
            if self.store.settle_keyed(each, job.hold, freed=_freed([(job, each)])):
                accepted.add(each.id)
        return accepted

    def give_back(self, pairs: Sequence[tuple[str, int]]) -> int:
        return self.store.give_back(pairs)

    def park(self, job: Claimed, mark: str) -> bool:
        freed = None if job.limit_key is None else Freed([job.limit_key])
        return bool(self.store.park(job.id, job.token, reason="arguments", detail="no", mark=mark, freed=freed))

    def release_parked(self, task: str, mark: str) -> int:
        return self.store.release_parked(task, mark)

    def held_by(self, worker_id: str) -> list[tuple[str, int]]:
        return sorted(self.store.held_by(worker_id))

    # -- rescue and upkeep ------------------------------------------------------------------------------------

    def rescue_lapsed(self) -> int:
        silent = {(run.id, run.token) for run in self.store.lapsed(1)}
        with NO_JITTER:
            return rescue_silent(self.store, silent, lease_us=1, crash_limit=CRASH_LIMIT)

    def see_lapsed(self) -> list[tuple[str, int]]:
        self.lapsed = self.store.lapsed(1)
        return [(run.id, run.token) for run in self.lapsed]

    def rescue_seen(self) -> list[bool]:
        """A sweep that was slow between its look and what it did about it."""
        rescued = []
        for run in self.lapsed:
            settled = after_crash(run, crash_limit=CRASH_LIMIT, random=lambda: 0.5)
            freed = None if run.limit_key is None else Freed([run.limit_key])
            rescued.append(bool(self.store.settle_keyed(settled, run.hold, only_expired=True, freed=freed)))
        self.lapsed = []
        return rescued

    def rescue_dead(self, worker_id: str) -> int:
        pid = int(worker_id[-4:], 16)
        workers, deaths = self.store.workers(), Deaths(self.store)
        deaths.linger = 0.0
        with NO_JITTER:
            return rescue_dead(
                self.store, workers, lambda process: process.pid == pid, crash_limit=CRASH_LIMIT, deaths=deaths
            )

    def prune_jobs(self, state: str, keep_us: int) -> int:
        return self.store.prune_jobs(State(state), keep_us)

    def prune_rest(self) -> None:
        self.store.prune_rest(10**15)

    # -- people -----------------------------------------------------------------------------------------------

    def cancel(self, job_id: str, reason: str) -> tuple[str, str | None]:
        return self.store.cancel(job_id, reason, actor=BOSS)

    def retry(self, job_id: str) -> tuple[str, str | None]:
        return self.store.retry(job_id, actor=BOSS)

    def end_by_hand(self, job_id: str, state: str, reason: str) -> str:
        return self.store.end_by_hand(job_id, State(state), reason, actor=BOSS)

    def delete(self, job_id: str) -> str:
        return self.store.delete(job_id, actor=BOSS)

    def set_priority(self, job_id: str, priority: int) -> bool:
        return self.store.set_priority(job_id, priority, actor=BOSS)

    def reschedule(self, job_id: str, delay_us: int) -> bool:
        return self.store.reschedule(job_id, delay_us=delay_us, actor=BOSS)

    def meddle(self, job_id: str, tenant: str) -> list[object]:
        """What a tenant who knows another's job id can do with it."""
        own = self.store.of_tenant(tenant)
        return [
            own.get(job_id),
            own.runs_of(job_id),
            own.cancel(job_id, "not mine"),
            own.retry(job_id),
            own.delete(job_id),
            own.end_by_hand(job_id, State.FAILED, "not mine"),
            own.set_priority(job_id, 99),
            own.reschedule(job_id, delay_us=1),
        ]

    def pause(self, scope: str, name: str, for_us: int | None) -> None:
        self.store.gates.pause(scope, name, by="boss", reason="why", until=None, for_us=for_us)

    def resume(self, scope: str, name: str) -> bool:
        return self.store.gates.resume(scope, name)

    def set_limit(self, scope: str, name: str, slots: int | None) -> None:
        if slots is None:
            self.store.gates.unset_limit(scope, name)
        else:
            self.store.gates.set_limit(scope, name, Says(slots=slots))
        assert self.store.gates.stamp() == 0, "no claim is under way that a new limit would have to wait for"

    def set_key_limit(self, key: str, slots: int | None) -> None:
        self.store.gates.set_key_limit(key, Says(slots=slots))

    def set_group(self, slots: int | None, keys: Collection[str]) -> None:
        for group in sorted({key.partition("/")[0] for key in keys}):
            self.store.gates.set_limit("keys", group, Says(slots=slots))
            self.store.gates.rearrange(group)

    # -- recurring jobs ---------------------------------------------------------------------------------------

    def recur(self, new: NewRecurring) -> bool:
        return self.store.run(lambda: self.store.recurring_by(BOSS).recur(new)).created

    def set_enabled(self, job_id: str, enabled: bool, reason: str | None) -> bool:
        recurring = self.store.recurring_by(BOSS)
        try:
            self.store.run(lambda: recurring.set_enabled(job_id, enabled, by="boss", reason=reason))
        except RecurringJobNotFound:
            return False
        return True

    def run_now(self, job_id: str) -> str:
        try:
            self.store.run(lambda: self.store.recurring_by(BOSS).run_now(job_id))
        except RecurringJobNotFound:
            return "unknown"
        except Conflict:
            return "conflict"
        return "done"

    def delete_recurring(self, job_id: str) -> bool:
        return self.store.run(lambda: self.store.recurring_by(BOSS).delete(job_id))

    # -- what can be seen -------------------------------------------------------------------------------------

    def jobs(self) -> dict[str, tuple[object, ...]]:
        """Every job, as people see it."""
        listed = self.store.find(Filter(limit=1_000))
        ids = [str(row[0]) for row in self.raw.rows("SELECT id FROM duly.jobs")]
        found = self.store.jobs_of(ids)
        assert sorted(record.id for record in listed) == sorted(found) == sorted(ids), "lists do not agree"
        return {
            job.id: (
                *(job.state.value, job.reason, job.run_at, job.token, job.attempt, job.crashes, job.worker_id),
                *(job.claimed_at, job.cancel_at, job.finished_at, job.args, job.priority, job.tenant, job.task),
            )
            for job in found.values()
        }

    def counts(self) -> dict[str, int]:
        counts = self.store.counts()
        return {
            "scheduled": sum(row[3] for row in counts.scheduled),
            "waiting": sum(row[3] for row in counts.waiting),
            "running": sum(row[3] for row in counts.running),
            **{f"parked {reason}": n for reason, n in counts.parked.items()},
            **counts.ended,
        }

    def runs(self) -> list[RunFact]:
        rows = self.raw.rows("SELECT job_id, token, attempt, outcome, worker_id FROM duly.runs ORDER BY job_id, token")
        return [RunFact(*row) for row in rows]

    def unique_keys(self) -> dict[tuple[str, str], tuple[object, ...]]:
        rows = self.raw.rows("SELECT tenant, key, job_id, scope, until, next_id FROM duly.unique_keys")
        return {(row[0], row[1]): tuple(row[2:]) for row in rows}

    def recurring(self) -> dict[str, tuple[object, ...]]:
        return {
            it.id: (
                it.enabled,
                it.next_run_at,
                it.tick_at,
                it.last_tick_at,
                it.failures,
                it.last_outcome,
                it.disabled_by,
            )
            for it in self.store.recurring_jobs()
        }

    def limits(self) -> dict[Gate, int]:
        """How many may run, by queue, task and tenant."""
        limits = [limit for limit in self.store.gates.limits() if limit.scope != "keys"]
        return {limit.gate: limit.says.slots for limit in limits if limit.says.slots is not None}


def _freed(pairs: Sequence[tuple[Claimed, Settled]]) -> Freed | None:
    keys = {job.limit_key for job, _ in pairs if job.limit_key is not None}
    return Freed(keys) if keys else None
