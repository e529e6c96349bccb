"""`drain`: runs what is due here and now, by the parts that a worker is made of, one job after the other.

Not a second engine: jobs are claimed by the worker's claimer, run by its executor and settled by its finisher. Only
threads, sleeping and chance are left out: handlers run in the caller's thread, retries come without jitter, and with
a `TestClock` no time passes but what the test lets pass.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from duly.app import Duly, queue_shares
from duly.domain import outcome
from duly.domain.clock import from_us
from duly.domain.errors import ArgumentsDoNotFit, InvalidOption, Retry, Steer, WorkerError
from duly.domain.ids import uuid7
from duly.domain.records import Settled
from duly.job import Job
from duly.maintenance.declare import declare
from duly.store.database import Hint
from duly.testing.clock import TestClock
from duly.testing.drained import Drained, DrainedRun, outcome_of
from duly.testing.inline import (
    InlineAsyncRunner,
    InlineThreadRunner,
    OneSlot,
    StandingStore,
    WatchedExecutor,
    is_async,
    of_one_kind,
)
from duly.worker.capture import Capture
from duly.worker.claimer import Claimer
from duly.worker.context import Run
from duly.worker.executor import Concluded
from duly.worker.finisher import Finisher
from duly.worker.keeper import Keeper
from duly.worker.registry import Kind
from duly.worker.service import Service
from duly.worker.slots import JobsEnded, QueueShare, Slots, Spell

log = logging.getLogger("duly.testing")

LEASE = 3600.0  # nobody shares a test's database, and whoever steps through a handler in a debugger takes long
MIDDLE = 0.5  # of all chances: a delay with jitter comes out as it was written


def drain(
    jobs: Duly,
    *,
    queues: object = None,
    limit: int = 10_000,
    raise_errors: bool = False,
    until_done: bool = False,
) -> Drained:
    """Run every job that is due, in this thread, until none is; also those that the handlers enqueue meanwhile.

    `queues`: only these; by default every queue that has jobs. `limit`: stop after so many runs. `raise_errors`: raise
    the first exception of a handler, once it is on record. `until_done`: when none is due, move the `TestClock` to when
    the next one is, until nothing is left.
    """
    if any(map(is_async, jobs.registry)) and _in_event_loop():
        raise WorkerError("drain() cannot run async handlers inside a running event loop. Use: await adrain(jobs)")
    return Drain(jobs, queues, limit, raise_errors, until_done).run()


async def adrain(
    jobs: Duly,
    *,
    queues: object = None,
    limit: int = 10_000,
    raise_errors: bool = False,
    until_done: bool = False,
) -> Drained:
    """The same from a coroutine: async handlers run on its loop, `def` handlers in one thread."""
    work = Drain(jobs, queues, limit, raise_errors, until_done, asyncio.get_running_loop())
    thread = asyncio.ensure_future(asyncio.to_thread(work.run))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        work.stop()
        await asyncio.gather(thread, return_exceptions=True)
        raise


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Drain:
    """One drain: a worker's parts, stepped by whoever calls `run`."""

    def __init__(
        self,
        app: Duly,
        queues: object,
        limit: int,
        raise_errors: bool,
        until_done: bool,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if limit < 1:
            raise InvalidOption(f"limit must be 1 or more, not {limit!r}")
        if until_done and not isinstance(app.clock, TestClock):
            raise InvalidOption(
                f"until_done needs a clock that can be moved: Duly(url, clock=TestClock()), not {app.clock!r}"
            )
        self._app = app
        self._queues = None if queues is None else queue_shares(queues, app.registry)
        self._limit = limit
        self._raise_errors = raise_errors
        self._until_done = until_done
        self._worker_id = uuid7()
        self._tasks = of_one_kind(app.registry)
        self._held: dict[str, Run] = {}
        self._runs: list[DrainedRun] = []
        self._stopping = False
        store = StandingStore(app.store.database, app.store.hooks) if app.clock.manual else app.store
        self._finisher = Finisher(store, self._held, self._ended, finished=app.waiters.ended, due_in=lambda _: None)
        self._executor = WatchedExecutor(
            self._tasks,
            self._conclude,
            max_result=app.settings.max_result,
            now_us=app.store.now_us,
            chance=lambda: MIDDLE,
        )
        self._threads = InlineThreadRunner(self._executor)
        self._loop = InlineAsyncRunner(self._executor, loop)
        keeper = Keeper(app.store, self._worker_id, self._held, self._interrupt, lease=LEASE)
        self._keeper = Service("keeper", lambda: min(keeper.watch(), keeper.step()))
        self._slots = Slots({}, [])
        self._claimed = 0
        self._settled: Settled | None = None
        self._began_us = 0

    # -- life -------------------------------------------------------------------------------------------------

    def run(self) -> Drained:
        """Do it. Whatever is raised meanwhile, nothing stays held or running."""
        self._get_ready()
        capture = Capture()
        with ExitStack() as afterwards:
            afterwards.callback(self._call_stop_hooks)
            afterwards.callback(logging.getLogger().removeHandler, capture)
            afterwards.callback(self._give_back)
            afterwards.callback(self._keeper.stop)
            afterwards.callback(self._loop.stop, 0)
            afterwards.callback(self.stop)
            logging.getLogger().addHandler(capture)
            self._keeper.start()
            self._work()
        return Drained(runs=tuple(self._runs), limit_reached=self._claimed >= self._limit)

    def stop(self) -> None:
        """Claim no more, and interrupt what runs; it is given back unharmed."""
        self._stopping = True
        for run in list(self._held.values()):
            run.stopping = True
            self._interrupt(run)

    def _get_ready(self) -> None:
        """What a worker does when it starts."""
        self._app.store.gates.declare(self._tasks.limits(), self._tasks.key_groups())
        for task in self._tasks:
            self._app.store.release_parked(task.name, task.signature.fingerprint)
        declare(self._app.store, self._app.registry)
        for hook in self._tasks.on_start:
            hook()

    def _give_back(self) -> None:
        """Settle what has ended, and give back what was claimed and not begun: only an interrupted drain has any."""
        while not self._finisher.idle:
            time.sleep(self._finisher.step())  # somebody may hold what has ended: a unique key, a recurring job
        if self._held:
            self._app.store.give_back([(run.job.id, run.job.token) for run in self._held.values()])

    def _call_stop_hooks(self) -> None:
        for hook in self._tasks.on_stop:
            try:
                hook()
            except Exception:
                log.exception("shutdown hook %r raised", hook)

    # -- claiming ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        self._run_what_is_due()
        while self._until_done and not self._enough and self._move_to_next():
            self._run_what_is_due()

    def _run_what_is_due(self) -> None:
        """Until nothing is found, and handlers have opened no new queue meanwhile."""
        known: list[QueueShare] = []
        while (shares := self._shares(known)) != known:
            self._empty(shares)
            known = shares

    def _shares(self, known: list[QueueShare]) -> list[QueueShare]:
        """The queues to take from: those asked for, or all that have or had jobs."""
        if self._queues is not None:
            return self._queues
        while self._app.store.gates.admit():
            pass  # jobs that stand aside for their keys are in no queue yet
        counts = self._app.store.counts()
        names = {row[0] for row in (*counts.waiting, *counts.scheduled)} | {share.name for share in known}
        return [QueueShare(name=name) for name in sorted(names)]

    def _empty(self, shares: list[QueueShare]) -> None:
        """Step a claimer until two steps in a row bring nothing: one may only say that it goes to sleep."""
        claimer = self._new_claimer(shares)
        fruitless = 0
        while fruitless < 2 and not self._enough:
            before = claimer.claimed
            claimer.hint([Hint("look")])  # promote what became due, see every lane: handlers may have enqueued
            claimer.step()
            fruitless = fruitless + 1 if claimer.claimed == before else 0

    @property
    def _enough(self) -> bool:
        return self._stopping or self._claimed >= self._limit

    def _new_claimer(self, shares: list[QueueShare]) -> Claimer:
        self._slots = Slots({Kind.THREAD: OneSlot(1)}, shares)
        claimer = Claimer(
            self._app.store,
            self._tasks,
            self._slots,
            worker_id=self._worker_id,
            lease_us=int(LEASE * 1e6),
            dispatch=self._dispatch,
            take_back=lambda: None,
            held={},  # each run is settled before the next is taken
            poll=lambda: 0.0,
            over=self._finisher.over,
            most=self._limit - self._claimed,
        )
        claimer.bounds.rank_alone = True  # one order, that tests can count on
        return claimer

    def _move_to_next(self) -> bool:
        """Move the clock to when the next job that this drain may run is due. Returns whether there is one."""
        assert isinstance(self._app.clock, TestClock)
        names = None if self._queues is None else {share.name for share in self._queues}
        counts = self._app.store.counts()
        due = [
            run_at
            for queue, _, task, _, run_at in counts.scheduled
            if task in self._tasks.tasks and (names is None or queue in names)
        ]
        if counts.waiting or counts.parked.get("key"):
            due += self._openings()
        if not due or min(due) <= self._app.clock.now_us():
            return False
        self._app.clock.move_to(from_us(min(due)))
        return True

    def _openings(self) -> list[int]:
        """When limits that jobs wait for let one start: rates, pauses and keys."""
        gates = self._app.store.gates
        rates = [gates.opens_in_us([limit.gate]) for limit in gates.limits() if limit.says.rate_n is not None]
        waits = [wait for wait in (*rates, self._app.store.next_due_us()) if wait is not None and wait > 0]
        return [self._app.clock.now_us() + wait for wait in waits]

    # -- running ----------------------------------------------------------------------------------------------

    def _dispatch(self, _: Kind, runs: list[Run]) -> None:
        for run in runs:
            self._claimed += 1
            self._held[run.job.id] = run
            run.rated = False  # it starts at once, however long that takes in a debugger
            self._executor.error, self._settled, self._began_us = None, None, self._app.clock.now_us()
            self._keeper.wake()
            before = self._finisher.settled
            self._runner_of(run).submit([run])
            self._finisher.step()
            self._note(run, accepted=self._finisher.settled > before)

    def _runner_of(self, run: Run) -> InlineThreadRunner | InlineAsyncRunner:
        task = self._app.registry.find(run.job.tenant, run.job.task)
        return self._loop if task is not None and is_async(task) else self._threads

    def _interrupt(self, run: Run) -> None:
        self._runner_of(run).interrupt(run)

    def _conclude(self, concluded: Concluded) -> None:
        """Hand a run that ended to the finisher; how long it took is measured by the clock of the test."""
        run, ended_ns, settled = concluded
        if self._app.clock.manual and settled.ran_us >= 0:
            settled = settled._replace(ran_us=max(0, self._app.clock.now_us() - self._began_us))
        self._settled = settled
        self._finisher.conclude((run, ended_ns, settled))

    def _ended(self, counts: JobsEnded, spells: Sequence[Spell]) -> None:
        self._slots.ended(counts, spells)

    def _note(self, run: Run, *, accepted: bool) -> None:
        """Keep what became of a run; raise what must be raised."""
        settled, raised = self._settled, self._executor.error
        assert settled is not None
        became = outcome_of(settled, accepted=accepted)
        error = _error_of(run, settled, raised)
        job: Job[Any] = Job(self._app, run.job.id)
        self._runs.append(DrainedRun(job=job, task=run.job.task, attempt=run.job.attempt, outcome=became, error=error))
        if raised is not None and not isinstance(raised, Exception | SystemExit | asyncio.CancelledError):
            raise raised  # Ctrl-C, pytest.fail, pytest-timeout: meant for whoever drains
        if self._raise_errors and error is not None and not (isinstance(error, Retry) and became == "retried"):
            error.add_note(
                f"Raised by job {run.job.id} ({run.job.task}), run {run.job.attempt} of {run.job.max_attempts}"
            )
            raise error


def _error_of(run: Run, settled: Settled, raised: BaseException | None) -> BaseException | None:
    """What went wrong, as an exception. To snooze or cancel is nothing wrong."""
    if settled.state == "parked":
        return ArgumentsDoNotFit(settled.error or "")
    if settled.outcome != "failed":
        return None
    if not run.timed_out or isinstance(raised, Steer):
        return raised
    error = outcome.timed_out(run.job.timeout_us or 0)
    error.__cause__ = raised
    return error
