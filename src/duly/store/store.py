"""The repository: what can be done with jobs, in sentences. Public, for callers who run their own loop.

    from duly.domain.ids import uuid7
    from duly.domain.records import Lane, NewJob, Settled
    from duly.store.store import Store

    me = uuid7()
    store = Store.open("sqlite:///jobs.db")
    store.migrate()
    once = {"unique_key": "send 42", "unique_mode": "skip", "unique_scope": "live"}
    store.enqueue(NewJob(id=uuid7(), task="send", args='{"user_id": 42}', **once))
    for job in store.claim("default", [Lane("", "send")], 10, worker_id=me, lease_us=15_000_000):
        print(f"job {job.id} runs with {job.args}")
        settled = Settled(job.id, job.token, "succeeded", "succeeded", ran_us=1200)
        store.settle_keyed(settled, job.hold)
    store.close()

Runs of jobs that hold no unique key (`job.hold` is 0) may be settled many at a time, by `settle`.
Every write about a claimed job carries (id, token) and changes nothing if the token no longer holds.
Not here: any decision (which state, when again): those are made by `duly.domain` and handed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from duly.domain.audit import Actor
from duly.domain.clock import Clock, SystemClock
from duly.domain.limits import Gate
from duly.domain.records import (
    HOLD,
    Claimed,
    Enqueued,
    Lane,
    Lapsed,
    NewJob,
    ProcessIdentity,
    Settled,
    Skew,
    WorkerRecord,
)
from duly.domain.states import State
from duly.store import (
    ops_audit,
    ops_claim,
    ops_enqueue,
    ops_jobs,
    ops_keys,
    ops_settle,
    ops_upkeep,
    ops_workers,
)
from duly.store.call import Call, Dialect, Op, rows_of
from duly.store.caps import Caps
from duly.store.completions import Completions
from duly.store.database import Database, Hint, Waker
from duly.store.fresh import Fresh
from duly.store.gates import Gates
from duly.store.opening import open_database
from duly.store.ops_keys import Freed
from duly.store.ops_unique import Patience
from duly.store.people import ForPeople

if TYPE_CHECKING:  # imported where it is used: few programs have recurring jobs at start-up
    from duly.domain.recurring import Occurrence, RecurringRecord
    from duly.store.ops_mirrors import Hooks
    from duly.store.ops_recurring import Recurring
    from duly.store.ops_recurring_runs import Ended
    from duly.store.tenant import TenantStore

R = TypeVar("R")
NO_HURRY_US = 15_000_000


class Store(ForPeople):
    """What can be done with jobs. Safe to use from any thread."""

    def __init__(self, database: Database, hooks: Hooks | None = None) -> None:
        self.database = database
        self.dialect: Dialect = database.dialect
        self.hooks: Hooks = {} if hooks is None else hooks
        """The Python hooks of this process that see changes of recurring jobs, by task."""
        self.gates = Gates(database)
        self.caps = Caps(database)
        self.completions = Completions(database, self.hooks)
        self._shard = random.randrange(1, 2**31)

    @classmethod
    def open(cls, url: str, *, clock: Clock | None = None, schema: str = "duly") -> Store:
        """Open a repository by its address."""
        return cls(open_database(url, clock or SystemClock(), schema=schema))

    def reserved(self, purpose: str, *, patience: float | None = None) -> Store:
        """The same repository by a connection that nobody else can take, given up after `patience` of silence."""
        return Store(self.database.reserved(purpose, patience=patience), self.hooks)

    def release(self) -> None:
        """Give a reserved connection up."""
        self.database.release()

    def close(self) -> None:
        """Close every connection."""
        self.database.close()

    def migrate(self) -> list[int]:
        """Bring the tables up to this version. Returns the versions applied."""
        return self.database.migrate()

    # -- enqueue ----------------------------------------------------------------------------------------------

    def enqueue(self, job: NewJob) -> Enqueued:
        """Store a job and wake a worker. May be repeated after a lost connection: the id is the caller's."""
        self.caps.check(job.queue, job.tenant)
        if self.dialect is Dialect.POSTGRES and ops_enqueue.is_plain(job):
            channel, payload = self.database.notice(Hint("jobs", job.queue, job.tenant, job.task))
            return self.database.write(lambda: ops_enqueue.store_plain(job, channel, payload), atomic=False)
        single = job.unique_mode == "none" and (job.limit_key is None or self.dialect is Dialect.POSTGRES)
        answer, addresses = self.database.write(lambda: self._enqueue(job), atomic=not single)
        self._wake_for(job, addresses)
        return answer

    def _enqueue(self, job: NewJob) -> Op[tuple[Enqueued, list[str] | None]]:
        """Store a job, and learn on the way where workers listen, if that must be known."""
        answer = yield from ops_enqueue.enqueue(self.dialect, job)
        return answer, ((yield from ops_workers.wake_addresses()) if self.dialect is Dialect.SQLITE else None)

    def enqueue_many(self, model: NewJob, rows: Sequence[Fresh]) -> list[Enqueued]:
        """Store many jobs that differ in (id, args, unique key), all or none."""
        self.caps.check(model.queue, model.tenant, len(rows))
        database = self.database
        many = database.write(lambda: ops_enqueue.enqueue_many(self.dialect, model, rows, copy=database.copies))
        self._wake_for(model, keyed=any(len(row) > 3 for row in rows[:1]), rank=many.rank)
        return many.answers

    def _wake_for(
        self, job: NewJob, addresses: list[str] | None = None, *, keyed: bool = False, rank: int | None = None
    ) -> None:
        if job.delay_us >= NO_HURRY_US:
            return  # every worker asks for what is due at least that often
        later = job.run_at is not None or job.delay_us or keyed or job.limit_key is not None
        self.database.poke(Hint("due") if later else Hint("jobs", job.queue, job.tenant, job.task, rank), addresses)

    # -- claim, settle ----------------------------------------------------------------------------------------

    def lanes(self, queue: str, *, suspect: bool = False, after: Lane | None = None) -> list[tuple[Lane, int]]:
        """Which lanes of a queue have jobs, with the rank at the head of each.

        At most `ops_claim.MAX_LANES`, by tenant and task; for the next ones ask again with the last as `after`.
        """
        return self.database.read(lambda: ops_claim.lanes(self.dialect, queue, suspect=suspect, after=after))

    def look(self, queue: str, *, after: Lane | None = None) -> ops_claim.Found:
        """The same, and which lanes of jobs that run alone there are."""
        return self.database.read(lambda: ops_claim.look(self.dialect, queue, after=after))

    def claim(
        self,
        queue: str,
        lanes: Sequence[Lane],
        n: int,
        *,
        worker_id: str,
        lease_us: int,
        suspect: bool = False,
        gates: Sequence[Gate] = (),
        ended: Sequence[tuple[str, int]] = (),
        shares: Mapping[str, int] | None = None,
    ) -> list[Claimed]:
        """Lease up to `n` due jobs of these lanes to a worker, lowest rank first.

        `gates`: the limits that bind all of these lanes (see `Gates.limits`); lanes that others bind give nothing, so
        no limit is ever exceeded, whatever the caller knows. `ended`: runs that have ended and are yet to be settled,
        by id and token. `shares`: how many of each tenant at most.
        """
        leased = self.database.write(
            lambda: ops_claim.claim(
                self.dialect,
                queue=queue,
                from_lanes=lanes,
                n=n,
                worker_id=worker_id,
                lease_us=lease_us,
                suspect=suspect,
                gates=gates,
                ended=ended,
                shares=shares,
            ),
            atomic=False,
            again=False,
        )
        return list(leased)

    def settle(
        self,
        batch: Sequence[Settled],
        *,
        ages: Sequence[int] | None = None,
        only_expired: bool = False,
        repeated: bool = False,
        freed: Freed | None = None,
    ) -> set[str]:
        """End runs whose jobs hold no unique key. Returns the ids accepted; the others had lost their lease.

        `ages`: how many microseconds ago each ended, instead of what it says itself. `repeated`: an earlier call with
        these runs failed, and may have been committed all the same. `freed`: the keys of their limits
        (`Claimed.limit_key`), of which the next jobs are let in; afterwards it says where.
        """
        tries = iter((repeated, True))

        def op() -> Op[set[str]]:
            again = next(tries, True)  # first of all: this try may be cut off anywhere
            settling = ops_settle.settle(
                self.dialect, batch, ages=ages, shard=self._shard, only_expired=only_expired, own=True
            )
            accepted = yield from ops_keys.freeing(self.dialect, freed, settling, lambda ids: ids)
            if again and len(accepted) < len(batch):
                missing = [each for each in batch if each.id not in accepted]
                accepted |= yield from ops_settle.already_settled(missing)
            return accepted

        return self.database.write(op, atomic=freed is not None or bool(ops_settle.worn(batch)))

    def settle_keyed(
        self,
        settled: Settled,
        hold: int,
        *,
        only_expired: bool = False,
        repeated: bool = False,
        freed: Freed | None = None,
        patience: Patience = Patience.ENDLESS,
    ) -> bool | None:
        """End one run whose job holds a unique key or recurs (`Claimed.hold` is not 0). Returns if it was accepted.

        `repeated`: an earlier call with this run failed, and may have been committed all the same. None instead: the
        recurring job, or the key for which there was not enough `patience`, is held by somebody else: try again.
        """
        if hold == HOLD["recurs"]:
            ended = self.end_recurring([settled], only_expired=only_expired, repeated=repeated, freed=freed)
            return None if settled.id in ended.held else settled.id in ended.accepted
        if hold in (HOLD["none"], HOLD["window"]):
            return bool(self.settle([settled], only_expired=only_expired, repeated=repeated, freed=freed))
        tries = iter((repeated, True))

        def op() -> Op[set[str] | None]:
            again = next(tries, True)
            settling = ops_settle.settle_keyed(
                self.dialect, settled, hold, shard=self._shard, only_expired=only_expired, patience=patience
            )
            accepted = yield from ops_keys.freeing(self.dialect, freed, settling, lambda ids: ids or ())
            if again and not accepted:
                accepted = (yield from ops_settle.already_settled([settled])) or accepted
            return accepted

        accepted = self.database.write(op)
        return None if accepted is None else bool(accepted)

    def end_recurring(
        self,
        batch: Sequence[Settled],
        *,
        only_expired: bool = False,
        repeated: bool = False,
        mirrored: bool = True,
        queueing: bool = False,
        freed: Freed | None = None,
    ) -> Ended:
        """End runs of recurring jobs (`Claimed.hold` is HOLD["recurs"]); what follows is decided by their rules.

        Those whose recurring job is held by somebody else, and those whose mirror fails, are not settled; the answer
        names them. `repeated`: an earlier call failed, and may have been committed all the same. `mirrored=False`: the
        mirror has failed too often, and is left out. `queueing`: wait a little for those that others hold.
        """
        from duly.domain.recurring import Next
        from duly.store import ops_recurring_runs

        tries = iter((repeated, True))

        def op() -> Op[Ended]:
            again = next(tries, True)
            ending = ops_recurring_runs.end_runs(
                self.recurring,
                batch,
                shard=self._shard,
                only_expired=only_expired,
                mirrored=mirrored,
                queueing=queueing,
            )
            ended = yield from ops_keys.freeing(self.dialect, freed, ending, lambda ended: ended.accepted)
            if again:
                known = {*ended.accepted, *ended.held, *ended.failed, *ended.hookless}
                found = yield from ops_settle.already_settled([each for each in batch if each.id not in known])
                for job_id in found:
                    ended.accepted[job_id] = Next("recurs", None, None, None, 0)
            return ended

        return self.database.write(op)

    def occurrences(self, ids: Sequence[str]) -> dict[str, Occurrence]:
        """What a worker must know of the recurring jobs that it has claimed."""
        from duly.store import ops_recurring_runs

        return self.database.read(lambda: ops_recurring_runs.occurrences(self.dialect, ids))

    @property
    def recurring(self) -> Recurring:
        """The operations on recurring jobs."""
        from duly.store.ops_recurring import Recurring

        return Recurring(self.dialect, self.hooks)

    def recurring_by(self, actor: Actor | None, *, tenant: str | None = None) -> Recurring:
        """The same for somebody, in whose name what is done is kept; with a tenant, among that tenant's alone."""
        return replace(self.recurring, actor=actor, tenant=tenant)

    def recurring_job(self, job_id: str) -> RecurringRecord | None:
        """One recurring job by its id."""
        return self.database.read(lambda: self.recurring.get(job_id))

    def recurring_jobs(
        self,
        *,
        tenant: str | None = None,
        task: str | None = None,
        enabled: bool | None = None,
        after: tuple[str, str, str] = ("", "", ""),
        n: int = 100,
        skip: int = 0,
    ) -> list[RecurringRecord]:
        """Recurring jobs by tenant, task and key; `after` is that of the last one of the page before."""
        from duly.store.ops_recurring import record_of

        params = {
            "tenant": tenant,
            "task": task,
            "enabled": enabled,
            "after_tenant": after[0],
            "after_task": after[1],
            "after_key": after[2],
            "n": n,
            "skip": skip,
        }
        name = "list_recurring" if tenant is None else "list_recurring_of"
        rows = self.database.read(lambda: rows_of(Call(name, params)))
        return [record_of(row) for row in rows]

    def count_recurring(self) -> tuple[int, int, int]:
        """How many recurring jobs are enabled, how many disabled, and how many of the enabled fail."""
        [row] = self.database.read(lambda: rows_of(Call("count_recurring")))
        return int(str(row[0])), int(str(row[1])), int(str(row[2]))

    def is_recurring(self, job_id: str) -> bool:
        """Whether a job recurs."""
        return bool(self.database.read(lambda: rows_of(Call("is_recurring", {"id": job_id}))))

    def spawn(self, n: int = 100) -> list[tuple[str, str, str, int, int]]:
        """Make the jobs of ticks that are due, for schedules that make a job per tick. Returns their lanes."""
        if not self.database.read(lambda: rows_of(Call("any_spawning"))):
            return []
        from duly.store import ops_recurring_runs

        return self.database.write(lambda: ops_recurring_runs.spawn(self.recurring, n))

    def prune_recurring(self, after: str, keep_us: int, *, actor: Actor | None = None) -> tuple[str | None, int]:
        """Forget old runs of the next recurring jobs by id. Returns where to go on, None at the end; how many went."""
        from duly.store import ops_recurring_runs

        def op() -> Op[tuple[str | None, int]]:
            following, gone = yield from ops_recurring_runs.prune_runs(self.dialect, after, keep_us)
            yield from ops_audit.keep_prune(actor, "recurring runs", gone, keep_us)
            return following, gone

        return self.database.write(op)

    def park(
        self,
        job_id: str,
        token: int,
        *,
        reason: str,
        detail: str,
        mark: str,
        repeated: bool = False,
        freed: Freed | None = None,
        patience: Patience = Patience.ENDLESS,
    ) -> bool | None:
        """Set a claimed job aside with the reason, no attempt counted. Returns if that was accepted.

        `repeated`: an earlier call failed, and may have been committed all the same. None instead: its unique key, for
        which there was not enough `patience`, is held by somebody else: try again.
        """
        tries = iter((repeated, True))
        words = {"reason": reason, "detail": detail, "mark": mark}

        def op() -> Op[bool | None]:
            again = next(tries, True)
            parking = ops_settle.park(self.dialect, job_id=job_id, token=token, **words, patience=patience)
            parked = yield from ops_keys.freeing(self.dialect, freed, parking, lambda done: {job_id} if done else ())
            if again and not parked and (yield Call("parked_before", {"id": job_id, "token": token, "mark": mark})):
                return True
            return parked

        return self.database.write(op)

    def release_parked(self, task: str, fingerprint: str) -> int:
        """Give jobs parked by another version of the code another chance."""
        return self.database.write(lambda: ops_jobs.release_parked(self.dialect, task, fingerprint, 1_000))

    def renew(
        self, pairs: Sequence[tuple[str, int]], lease_us: int, not_running: Sequence[str] = ()
    ) -> dict[str, bool | None]:
        """Extend leases by (id, token). Returns those that hold, and whether each was asked to stop.

        `not_running`: those of them whose handlers have not begun or have ended; their deadlines are put off.
        """
        return self.database.write(lambda: ops_settle.renew(self.dialect, pairs, lease_us, not_running), atomic=False)

    def progress(self, job_id: str, token: int, progress: float | None, text: str | None) -> None:
        """Note how far a run has come."""
        self._one(Call("set_progress", {"id": job_id, "token": token, "progress": progress, "text": text}))

    def cancel_requests(self, worker_id: str) -> list[tuple[str, int, str | None]]:
        """Which of a worker's jobs have been asked to stop."""
        rows = self.database.read(lambda: rows_of(Call("cancel_requests", {"worker_id": worker_id})))
        return [(str(row[0]), int(str(row[1])), None if row[2] is None else str(row[2])) for row in rows]

    def held_by(self, worker_id: str) -> list[tuple[str, int]]:
        """What a worker holds according to the database."""
        rows = self.database.read(lambda: rows_of(Call("held_by_worker", {"worker_id": worker_id})))
        return [(str(row[0]), int(str(row[1]))) for row in rows]

    def give_back(self, pairs: Sequence[tuple[str, int]]) -> int:
        """Release leases by (id, token) unharmed: no attempt is counted. Returns how many held."""
        given = self.database.write(lambda: ops_settle.give_back(self.dialect, pairs, shard=self._shard))
        self.poke(Hint("look"))
        return len(given)

    # -- rescue and upkeep ------------------------------------------------------------------------------------

    def lapsed(self, lease_us: int, n: int = 500) -> list[Lapsed]:
        """Runs whose lease or deadline has passed."""
        return self.database.read(lambda: ops_settle.lapsed(lease_us=lease_us, n=n))

    def held_by_dead(self, worker_id: str, n: int = 500) -> list[Lapsed]:
        """The runs of a worker that is known to be gone."""
        return self.database.read(lambda: ops_settle.held_by_dead(worker_id, n))

    def held_before_boot(self, lease_us: int, n: int = 500) -> list[Lapsed]:
        """The runs that an earlier boot of this machine left. `lease_us`: how long leases here last."""
        return self.database.read(lambda: ops_settle.held_before_boot(self.dialect, lease_us=lease_us, n=n))

    def next_lapse_us(self) -> int | None:
        """Microseconds until the next lease or deadline could pass."""
        return self.database.read(ops_upkeep.next_lapse)

    def promote(self, n: int = 1_000) -> list[tuple[str, str, str, int, int]]:
        """Put jobs whose time has come into their lanes. Returns (queue, tenant, task, rank, how many) for each."""
        return self.database.write(lambda: ops_upkeep.promote(self.dialect, n), atomic=False)

    def next_due_us(self) -> int | None:
        """Microseconds until the next scheduled job is due."""
        return self.database.read(ops_upkeep.next_due)

    def prune_jobs(self, state: State, keep_us: int, n: int = 1_000, *, actor: Actor | None = None) -> int:
        """Forget up to `n` finished jobs of one state that are older than `keep_us`. With an `actor`, by hand."""
        return self.database.write(lambda: ops_upkeep.prune_jobs(self.dialect, state, keep_us, n, actor=actor))

    def prune_rest(self, keep_rollups_us: int) -> None:
        """Forget spent unique keys, old counts and workers long gone."""
        self.database.write(lambda: ops_upkeep.prune_rest(self.dialect, keep_rollups_us))

    def add_up_hour(self, keep_minutes_us: int) -> bool:
        """Turn the oldest hour of counts by the minute into one row each."""
        return self.database.write(lambda: ops_upkeep.add_up_hour(self.dialect, keep_minutes_us))

    # -- workers ----------------------------------------------------------------------------------------------

    def add_worker(
        self,
        worker_id: str,
        process: ProcessIdentity,
        *,
        lease_us: int,
        queues: str,
        tasks: str,
        slots: int,
        wake: str | None,
        version: str,
        skew: Skew | None = None,
        capacity: str | None = None,
    ) -> None:
        """Write down that a worker has started."""
        self.database.write(
            lambda: ops_workers.add(
                worker_id,
                process,
                lease_us=lease_us,
                queues=queues,
                tasks=tasks,
                slots=slots,
                wake=wake,
                version=version,
                skew=skew,
                capacity=capacity,
            )
        )

    def see_worker(
        self, worker_id: str, state: str, skew: Skew | None = None, memory_bytes: int | None = None
    ) -> ops_workers.Seen:
        """Write down that a worker lives. Returns whether it is on record, and the µs until one is due or may lapse."""
        return self.database.write(lambda: ops_workers.see(worker_id, state, skew, memory_bytes), atomic=False)

    def count_anew(self) -> None:
        """Have PostgreSQL count the tables of live jobs, where it takes one for empty that is not."""
        self._one(Call("count_anew"))

    def set_idle(self, worker_id: str, idle: bool) -> None:
        """Say whether a worker needs waking."""
        self._one(Call("set_idle", {"id": worker_id, "idle": idle}))

    def remove_worker(self, worker_id: str) -> None:
        """Write down that a worker has stopped."""
        self._one(Call("delete_worker", {"id": worker_id}))

    def workers(self) -> list[WorkerRecord]:
        """Every worker on record."""
        return self.database.read(ops_workers.everyone)

    def waker(self, worker_id: str) -> Waker:
        """Something to wait for hints on."""
        return self.database.waker(worker_id)

    def poke(self, hint: Hint) -> None:
        """Give workers a hint."""
        self.database.poke(hint)

    # -- the rest ----------------------------------------------------------------------------------------------

    def anything_left(self, queue: str) -> bool:
        """Whether any job of a queue waits, is scheduled or runs. Recurring jobs count only while they are due."""
        rows = self.database.read(lambda: rows_of(Call("anything_left", {"queue": queue})))
        return bool(rows[0][0])

    def of_tenant(self, tenant: str) -> TenantStore:
        """What one tenant has, and nothing else."""
        from duly.store.tenant import TenantStore

        return TenantStore(self, tenant)

    def now_us(self) -> int:
        """What time the database says it is."""
        rows = self.database.read(lambda: rows_of(Call("clock", {"queue": "", "horizon": 0})))
        return int(str(rows[0][0]))

    def run(self, op: Callable[[], Op[R]]) -> R:
        """Run any operation in a transaction of its own."""
        return self.database.write(op)

    def _one(self, call: Call) -> None:
        self.database.write(lambda: rows_of(call), atomic=False)
