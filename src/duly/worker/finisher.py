"""Settles runs in batches: whatever ended while the last batch was written goes into the next."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.domain import outcome
from duly.domain.errors import DatabaseUnavailable, DulyError, SchemaMissing, SchemaTooNew, SchemaTooOld
from duly.domain.outcome import unrecordable
from duly.domain.records import HOLD, Settled
from duly.domain.retry import Backoff
from duly.domain.states import TERMINAL
from duly.store.database import Hint
from duly.store.ops_keys import Freed, Lanes
from duly.store.ops_unique import Patience
from duly.store.store import Store
from duly.worker.context import Run
from duly.worker.executor import Concluded
from duly.worker.over import Over
from duly.worker.slots import JobsEnded, Spell

if TYPE_CHECKING:
    from duly.store.ops_recurring_runs import Ended

log = logging.getLogger("duly.worker")

LINGER, LINGER_HURRIED = 0.003, 0.002
BATCH = 500
KEYED = (HOLD["queued"], HOLD["live"])
RECURS = HOLD["recurs"]
NOT_THE_JOBS_FAULT = (DatabaseUnavailable, SchemaMissing, SchemaTooNew, SchemaTooOld)
"""Errors after which a run is recorded later, as it was."""
MIRROR_TRIES = 3
PATIENCE = 4
SOON, LATER = 0.02, 1.0
"""How soon a run whose recurring job or unique key somebody else holds is tried again, first and at last."""
REST = 5
"""How much longer than a wait in the queue all others are let by before the next."""
TRIED_AT_ONCE = 20
"""How many runs whose unique keys somebody else holds are tried again before others have their turn."""


def _frees_others(run: Run, state: str) -> bool:
    """Whether sleeping workers may now have something to claim: a job given back, or one behind a unique key."""
    return state == "queued" or run.job.hold == HOLD["live"]


def spells_of(batch: Iterable[Concluded]) -> list[Spell]:
    """Who of these came together and ended one after the other; without those that were taken back."""
    spells: list[Spell] = []
    n = came_ns = ended_ns = 0
    kind = None
    for run, at_ns, _ in batch:
        if run.came_ns != came_ns or run.definition.kind is not kind:
            if kind is not None and came_ns:
                spells.append(Spell(kind, n, came_ns, ended_ns))
            n, came_ns, kind = 0, run.came_ns, run.definition.kind
        n, ended_ns = n + 1, at_ns
    if kind is not None and came_ns:
        spells.append(Spell(kind, n, came_ns, ended_ns))
    return spells


def _apart(batch: list[Concluded]) -> tuple[list[Concluded], list[Concluded]]:
    """The first run of each job, and the others: a worker may lose a job and claim it again before a run has ended."""
    first: dict[str, Concluded] = {}
    others: list[Concluded] = []
    for each in batch:
        if first.setdefault(each[2].id, each) is not each:
            others.append(each)
    return list(first.values()), others


@dataclass(slots=True)
class _Postponed:
    """A run that could not be settled yet: of a recurring job, or of one with a unique key."""

    concluded: Concluded
    due: float
    pause: float = SOON
    tries: int = 0
    """How often its mirror has failed."""
    error: str | None = None
    held: int = 0
    """How often somebody else held its job."""


class Finisher:
    """Takes concluded runs from any thread; `step` writes them."""

    def __init__(
        self,
        store: Store,
        held: dict[str, Run],
        ended: Callable[[JobsEnded, Sequence[Spell]], None],
        *,
        finished: Callable[[list[tuple[str, str]]], None],
        due_in: Callable[[float], None],
    ) -> None:
        self._store = store
        self._held = held
        self._ended = ended
        self._finished = finished
        self._due_in = due_in
        self._queue: deque[Concluded] = deque()
        self._batch: list[Concluded] = []
        self._postponed: dict[str, _Postponed] = {}
        self._queue_again_at = 0.0
        self._asleep = threading.Event()
        self.wake: Callable[[], None] = lambda: None
        self.over = Over()
        self.ending: Callable[[], None] = lambda: None
        """Who is told that runs under a limit have ended, and are about to be settled."""
        self.freed: Callable[[set[str]], None] = lambda queues: None
        """Who is told that runs under a limit are settled, and in which queues."""
        self.let_in: Callable[[Lanes], None] = lambda lanes: None
        """Who is told where jobs came in because others with their keys have ended."""
        self.report: Callable[[list[Concluded]], None] | None = None
        """Who is told of what was settled, if anybody meters."""
        self._repeated = False
        """Whether the last write failed, so that what it wrote may be on record already."""
        self.settled = 0
        self.refused = 0

    def conclude(self, concluded: Concluded) -> None:
        """Take a run that ended. Called by the runners, for every job."""
        run = concluded[0]
        if run.hurried:  # others wait for its slot: it is taken again while this one is being settled
            self.over.add((run,))
            self._ended(Counter([(run.definition.kind, run.job.queue, run.bound)]), spells_of((concluded,)))
            self.ending()
        self._queue.append(concluded)
        if self._asleep.is_set():
            self._asleep.clear()
            self.wake()

    def step(self) -> float:
        """Write a batch. Returns how long to wait if there is nothing."""
        self._collect()
        if self._postponed:
            self._try_postponed()
        if not self._batch:
            self._asleep.set()
            if self._queue:
                return 0.0
            next_due = min((each.due for each in self._postponed.values()), default=math.inf)
            return min(1.0, max(0.001, next_due - time.monotonic()))
        if len(self._batch) < BATCH and len(self._batch) < len(self._held):
            hurried = any(concluded[0].hurried for concluded in self._batch)
            time.sleep(LINGER_HURRIED if hurried else LINGER)  # others are about to end: one write for all
            self._collect()
        limited = [run for run, _, _ in self._batch if run.limited and not run.hurried]
        if limited:
            self.over.add(limited)
            self.ending()
        self.flush()
        return 0.0

    def _collect(self) -> None:
        queue, batch, before = self._queue, self._batch, len(self._batch)
        counts: JobsEnded = Counter()
        while queue and len(batch) < BATCH:
            concluded = queue.popleft()
            batch.append(concluded)
            run = concluded[0]
            if not run.hurried:
                counts[run.definition.kind, run.job.queue, run.bound] += 1
        if counts:
            self._ended(counts, spells_of(each for each in batch[before:] if not each[0].hurried))

    def flush(self) -> None:
        """Write what has been collected; on an error what is not yet written stays for the next try."""
        later: list[Concluded] = []
        if len({each[2].id for each in self._batch}) < len(self._batch):
            self._batch, later = _apart(self._batch)
        try:
            self._write()
        finally:
            self._batch += later
        if later:
            self.flush()

    def _write(self) -> None:
        """Write a batch in which no job is twice: the answer names jobs, not runs."""
        batch, now = self._batch, time.monotonic_ns()
        plain: list[Concluded] = []
        special: list[Concluded] = []
        recurring: list[Concluded] = []
        recorded: list[Concluded] = []
        for concluded in batch:
            run, settled = concluded[0], concluded[2]
            if run.recorded:
                recorded.append(concluded)
            elif run.job.hold == RECURS and not run.lost:
                recurring.append(concluded)
            elif settled.state == "parked" or run.job.hold in KEYED:
                (plain if run.lost else special).append(concluded)
            else:
                plain.append(concluded)
        if recorded:
            self._take_recorded(recorded)
            self._batch = [*plain, *special, *recurring]
        ours = [each for each in plain if not each[0].lost]
        repeated, self._repeated = self._repeated, True
        self._done(plain, self._settle_plain(ours, now, repeated=repeated) if ours else set())
        self._batch = special + recurring
        if recurring:
            self._end_recurring([_Postponed(each, 0.0) for each in recurring], repeated=repeated)
        self._batch = special
        for concluded in special:
            run, ended_ns, settled = concluded
            settled = settled.aged((now - ended_ns) // 1_000)
            accepted = self._settle_special(run, settled, repeated=repeated)
            if accepted is None:  # what it asked to be closed is closed: not again with every try
                self._postpone(_Postponed((run, ended_ns, concluded[2]._replace(block_us=0)), 0.0), None)
            else:
                self._done([concluded], {settled.id} if accepted else set())
            self._batch = self._batch[1:]
        self._repeated = False

    def _take_recorded(self, batch: list[Concluded]) -> None:
        """These are settled, by their own handlers: let in who waits for their keys, and tell whoever must know."""
        freed = freed_by(batch)
        if freed is not None:
            try:
                self._store.completions.let_in(freed)
                self._let_in(freed)
            except DatabaseUnavailable:
                raise
            except DulyError as error:
                log.warning("jobs that wait for %s are let in later: %s", ", ".join(sorted(freed.keys)), error)
        for run, _, _ in batch:
            following = None if run.completion is None else run.completion.following
            if following is not None and following.place_at is not None:
                self._due_in(max(0.0, (following.place_at - following.now_us) / 1e6))
        self._done(batch, {each[2].id for each in batch})

    def _settle_plain(self, batch: list[Concluded], now: int, *, repeated: bool) -> set[str]:
        """Settle together; where the database refuses that, one by one, so that one keeps no other from it."""
        freed = freed_by([each for each in batch if each[0].job.limit_key is not None])
        some = [each[2] for each in batch]
        ages = [(now - each[1]) // 1_000 for each in batch]
        try:
            self._block(some)
            accepted = self._store.settle(some, ages=ages, repeated=repeated, freed=freed)
            self._let_in(freed)
            return accepted
        except NOT_THE_JOBS_FAULT:
            raise
        except Exception as error:
            if len(batch) == 1:
                log.error("job %s: its run could not be recorded as it was: %s", some[0].id, error)
                return self._store.settle([unrecordable(some[0])], ages=ages, repeated=True, freed=freed)
        return set[str]().union(*(self._settle_plain([each], now, repeated=True) for each in batch))

    def _block(self, batch: list[Settled]) -> None:
        """Close the keys, or the tasks, whose handlers asked for it, before their jobs can come again."""
        for settled in batch:
            run = self._held.get(settled.id) if settled.block_us else None
            if run is not None:
                job = run.job
                scope, name = ("task", job.task) if job.limit_key is None else ("key", job.limit_key)
                self._store.gates.block(scope, name, settled.block_us, settled.reason or "asked to wait")

    def _let_in(self, freed: Freed | None) -> None:
        """Tell the claimer of the jobs that came in where others left."""
        if freed is not None and freed.lanes:
            self.let_in(freed.lanes)
            freed.lanes = []

    def _settle_special(
        self, run: Run, settled: Settled, *, repeated: bool, patience: Patience = Patience.NONE
    ) -> bool | None:
        """Settle one that holds a unique key, or must be set aside. None: somebody else holds its key."""
        try:
            return self._settle_keyed(run, settled, repeated=repeated, patience=patience)
        except NOT_THE_JOBS_FAULT:
            raise
        except Exception as error:
            log.error("job %s: its run could not be recorded as it was: %s", settled.id, error)
            return self._settle_keyed(run, unrecordable(settled), repeated=True, patience=patience)

    def _settle_keyed(self, run: Run, settled: Settled, *, repeated: bool, patience: Patience) -> bool | None:
        freed = freed_by([(run, 0, settled)])
        if settled.state == "parked":
            done = self._store.park(
                settled.id,
                settled.token,
                reason="arguments",
                detail=settled.error or "",
                mark=run.definition.signature.fingerprint,
                repeated=repeated,
                freed=freed,
                patience=patience,
            )
            if done is not None:
                _log_parked(run, settled)
        else:
            self._block([settled])
            done = self._store.settle_keyed(settled, run.job.hold, repeated=repeated, freed=freed, patience=patience)
        self._let_in(freed)
        return done

    # -- what somebody else holds: recurring jobs, unique keys ------------------------------------------------

    def _try_postponed(self) -> None:
        now = time.monotonic()
        due = [each for each in self._postponed.values() if each.due <= now]
        for each in due:
            if each.concluded[0].lost:
                del self._postponed[each.concluded[2].id]
                self._done([each.concluded], set())
        due = [each for each in due if not each.concluded[0].lost]
        queueing = next((each for each in due if each.held >= PATIENCE), None) if now >= self._queue_again_at else None
        if queueing is not None:  # others hold it without a gap: stand in the queue, alone, and seldom
            due.remove(queueing)
            self._try_again([queueing], queueing=True)
            self._queue_again_at = time.monotonic() + REST * (time.monotonic() - now)
        if due:
            self._try_again(due)

    def _try_again(self, batch: list[_Postponed], *, queueing: bool = False) -> None:
        recurring = [each for each in batch if each.concluded[0].job.hold == RECURS]
        if recurring:
            self._end_recurring(recurring, repeated=True, queueing=queueing)
        keyed = [each for each in batch if each.concluded[0].job.hold != RECURS]
        for each in keyed[:TRIED_AT_ONCE]:
            run, ended_ns, settled = each.concluded
            aged = settled.aged((time.monotonic_ns() - ended_ns) // 1_000)
            patience = Patience.LITTLE if queueing else Patience.NONE
            try:
                accepted = self._settle_special(run, aged, repeated=True, patience=patience)
            except NOT_THE_JOBS_FAULT:
                raise
            except Exception as error:  # it keeps no other from being recorded
                log.error("job %s: its run cannot be recorded: %s; trying again", settled.id, error)
                accepted = None
            if accepted is None:
                self._postpone(each, None)
            else:
                del self._postponed[settled.id]
                self._done([each.concluded], {settled.id} if accepted else set())

    # -- recurring jobs ---------------------------------------------------------------------------------------

    def _end_recurring(self, batch: list[_Postponed], *, repeated: bool, queueing: bool = False) -> None:
        """Settle together; what somebody else holds comes again later, while its lease is renewed."""
        spent = [each for each in batch if each.tries >= MIRROR_TRIES]
        if spent and len(spent) < len(batch):
            self._end_recurring([each for each in batch if each.tries < MIRROR_TRIES], repeated=repeated)
            batch = spent
        now = time.monotonic_ns()
        settled = [_with_age(each, now) for each in batch]
        freed = freed_by([each.concluded for each in batch])
        ended: Ended | None
        try:
            self._block(settled)
            ended = self._store.end_recurring(
                settled, repeated=repeated, mirrored=not spent, queueing=queueing, freed=freed
            )
            self._let_in(freed)
        except NOT_THE_JOBS_FAULT:
            raise
        except Exception as error:
            if len(batch) > 1:
                for each in batch:
                    self._end_recurring([each], repeated=True)
                return
            ended = self._end_anyhow(batch[0], settled[0], error, mirrored=not spent)
        if ended is not None:
            self._take_answer(batch, ended)
        over = {id(each.concluded) for each in batch}  # now, as the database may be gone before the others have ended
        self._batch = [each for each in self._batch if id(each) not in over]

    def _end_anyhow(self, each: _Postponed, settled: Settled, error: Exception, *, mirrored: bool) -> Ended | None:
        """Record a run without what the database refused; should even that fail, later: it keeps no other from it."""
        log.error("job %s: its run could not be recorded as it was: %s", settled.id, error)
        try:
            return self._store.end_recurring([unrecordable(settled)], repeated=True, mirrored=mirrored)
        except NOT_THE_JOBS_FAULT:
            raise
        except Exception as another:
            log.error("job %s: its run could not be recorded: %s; trying again", settled.id, another)
            self._postpone(each, None)
            return None

    def _take_answer(self, batch: list[_Postponed], ended: Ended) -> None:
        over: list[Concluded] = []
        for each in batch:
            run, _, settled = each.concluded
            job_id = settled.id
            if job_id in ended.held or job_id in ended.failed or job_id in ended.hookless:
                self._postpone(each, ended.failed.get(job_id) or ended.hookless.get(job_id))
                continue
            self._postponed.pop(job_id, None)
            over.append(_as_recorded(each))
            then = ended.accepted.get(job_id)
            if then is None:
                continue
            if then.state == "parked":
                _log_parked(run, settled)
            if then.reason is not None:
                log.warning("recurring job %s (%s) is disabled from now on: %s", job_id, run.job.task, then.reason)
            if then.place_at is not None:
                self._due_in(max(0.0, (then.place_at - ended.now_us) / 1e6))
        self._done(over, set(ended.accepted))

    def _postpone(self, each: _Postponed, error: str | None) -> None:
        run, _, settled = each.concluded
        if error is not None:
            each.tries, each.error = each.tries + 1, error
            log.warning("job %s (%s): its mirror failed: %s (try %d)", settled.id, run.job.task, error, each.tries)
        each.held += error is None
        each.due, each.pause = time.monotonic() + each.pause, min(LATER, each.pause * 2)
        before = self._postponed.get(settled.id)
        self._postponed[settled.id] = each
        if before is not None and before.concluded[0] is not run:  # it was lost, and the job claimed here once more
            self._done([before.concluded], set())

    def _done(self, batch: list[Concluded], accepted: set[str]) -> None:
        others = False
        freed: set[str] = set()
        over: list[tuple[str, str]] = []
        for run, _, settled in batch:
            if settled.id in accepted:
                self.settled += settled.outcome != "released" or settled.ran_us >= 0  # what never began is no run
                others = others or _frees_others(run, settled.state)
                if run.limited:
                    freed.add(run.job.queue)
                if settled.state in TERMINAL:
                    over.append((settled.id, settled.state))
                elif settled.state == "scheduled":
                    self._due_in(settled.delay_us / 1e6)
            else:
                self.refused += 1
                log.warning(
                    "job %s (%s): this run had lost its lease; what it did was not recorded", settled.id, run.job.task
                )
            if self._held.get(settled.id) is run:
                del self._held[settled.id]
        self.over.remove(run for run, _, _ in batch if run.limited)
        self._finished(over)
        if self.report is not None:
            self.report([each for each in batch if each[2].id in accepted])
        self._refund([run for run, _, settled in batch if run.late and settled.id in accepted])
        if freed:
            self.freed(freed)
        if others:
            self._store.poke(Hint("look"))

    def _refund(self, late: list[Run]) -> None:
        """Give rates back what was taken for runs that came too late to start. If it cannot be done, it is lost."""
        if late:
            try:
                self._store.gates.refund([(run.bound, run.job.limit_key) for run in late])
            except DulyError as error:
                log.warning("what %d runs took of their rates could not be given back: %s", len(late), error)

    @property
    def idle(self) -> bool:
        """Whether everything that ended has been written."""
        return not self._queue and not self._batch and not self._postponed


def freed_by(batch: list[Concluded]) -> Freed | None:
    """The keys of some runs, and for those with a breaker how they ended."""
    keys = {run.job.limit_key for run, _, _ in batch if run.job.limit_key is not None}
    if not keys:
        return None
    ended = [
        (settled.id, run.job.limit_key, settled.outcome in ("failed", "crashed"))
        for run, _, settled in batch
        if run.job.limit_key is not None
        and run.definition.limits.each.breaker is not None
        and settled.outcome in ("succeeded", "failed", "crashed")
    ]
    return Freed(keys, ended)


def _log_parked(run: Run, settled: Settled) -> None:
    log.warning("job %s (%s) parked: %s", settled.id, run.job.task, settled.error)


def _as_recorded(postponed: _Postponed) -> Concluded:
    """A run as it stands in the history: failed, once its mirror has failed too often."""
    run, ended_ns, settled = postponed.concluded
    if postponed.tries < MIRROR_TRIES or settled.state == "parked":
        return postponed.concluded
    return run, ended_ns, settled._replace(outcome=outcome.mirror_failed(settled, "").outcome)


def _with_age(postponed: _Postponed, now: int) -> Settled:
    """How the run ended and how long ago; as failed, once its mirror has failed too often."""
    run, ended_ns, settled = postponed.concluded
    if settled.state == "parked":
        return settled._replace(reason=run.definition.signature.fingerprint)
    settled = settled.aged((now - ended_ns) // 1_000)
    if postponed.tries >= MIRROR_TRIES:
        job = postponed.concluded[0].job
        delay = Backoff.from_data(job.retry, job.max_attempts).delay(job.attempt, random.random)
        return outcome.mirror_failed(settled, postponed.error or "", delay=delay)
    return settled
