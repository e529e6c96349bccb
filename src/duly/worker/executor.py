"""One attempt, as a visible pipeline: prepare, run, conclude. The runners differ only in how they call the handler."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from duly.domain import outcome
from duly.domain.clock import to_us
from duly.domain.durations import human, micros
from duly.domain.errors import ArgumentsDoNotFit, InvalidOption, NotCommitted, Steer, WorkerError
from duly.domain.json import decode, encode_result
from duly.domain.limits import LATE_US
from duly.domain.records import HOLD, Settled
from duly.domain.retry import Backoff
from duly.domain.text import clean_text, describe_exception
from duly.worker.afterwards import Afterwards
from duly.worker.context import Run, lease_time
from duly.worker.hooks import run_hook_whatever
from duly.worker.registry import Registry

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("duly.worker")

RECURS = HOLD["recurs"]
LATE = LATE_US / 1e6
PATIENCE = 8
"""How many runs under a rate may be given back in a row because they came late: on a busy machine all would."""
FEW_TRIPS, TRIPS = 3, 20
"""From how many claims on, and by how many of the last, it is known how long a claim takes at least."""
Concluded = tuple[Run, int, Settled]
Conclude = Callable[[Concluded], None]


class Unfit(Exception):
    """Arguments that the code no longer accepts: the job is parked, the handler not called."""


class Executor:
    """Turns a claimed job into a call, and what the call did into a settled run."""

    def __init__(
        self,
        registry: Registry,
        conclude: Conclude,
        *,
        max_result: int,
        now_us: Callable[[], int],
        crash_limit: int = 3,
        chance: outcome.Random = random.random,
    ) -> None:
        self.registry = registry
        self._conclude = conclude
        self.max_result = max_result
        self.now_us = now_us
        self._crash_limit = crash_limit
        self._chance = chance
        self.around = bool(registry.around)
        self._late = 0
        self._trips: deque[float] = deque(maxlen=TRIPS)
        self._judged_at = 0.0
        self._quickest = 0.0
        self.telling: set[asyncio.Task[None]] = set()
        """Failure hooks under way on the event loop."""
        self.afterwards = Afterwards(self.recorded)
        """What looks whether a handler's own transaction was committed; here, unless somebody has a thread for it."""

    def _is_late(self, run: Run) -> bool:
        """Whether so much time has passed since a run was claimed that with it more would start than its rate says.

        How long even the quickest of the last claims took is the way to the database, and the same for all.
        """
        if run.leased_at != self._judged_at:  # the next claim: judged by those before it
            self._quickest = min(self._trips) if len(self._trips) >= FEW_TRIPS else 0.0
            self._trips.append(run.came_at - run.leased_at)
            self._judged_at = run.leased_at
        if lease_time() - run.leased_at - self._quickest <= LATE or self._late >= PATIENCE:
            self._late = 0
            return False
        self._late += 1
        return True

    def admit(self, run: Run) -> bool:
        """Whether a run may begin. If not it is over: expired, cancelled, or given back."""
        job = run.job
        if run.cancelled():
            ended = outcome.cancelled(job, -1, run.cancel_reason, None) if run.cancel_reason else outcome.released(job)
            self._end(run, ended)
            return False
        if job.expires_at is not None and job.expires_at <= self.now_us():
            self._end(run, outcome.expired(job))
            return False
        if run.rated and self._is_late(run):
            run.late = True
            self._end(run, outcome.released(job))
            return False
        occurrence = run.occurrence
        if occurrence is not None and occurrence.misfire == "skip" and occurrence.tick_at is not None:
            late = self.now_us() - occurrence.tick_at
            if late > occurrence.grace_us and job.attempt == 1:
                self._end(run, outcome.missed(job, late, occurrence.grace_us))
                return False
        return True

    def prepare(self, run: Run) -> tuple[tuple[Any, ...] | list[Any], dict[str, Any]] | None:
        """Decode the arguments. None if the run is over before it began: not admitted, or they do not fit."""
        job = run.job
        if not self.admit(run):
            return None
        try:
            signature = run.definition.signature
            values = signature.load(decode(job.args))
            return ((), values) if run.definition.by_keyword else signature.split(values)
        except ArgumentsDoNotFit as misfit:
            self._end(run, Settled(job.id, job.token, "parked", "released", error=clean_text(str(misfit))))
        except BaseException as error:  # a type of the user's own raised, be it SystemExit
            text = describe_exception(error)
            self._end(run, Settled(job.id, job.token, "parked", "released", error=f"{text.kind}: {text.message}"))
        return None

    @contextmanager
    def surroundings(self, run: Run) -> Iterator[None]:
        """Enter the middleware, first registered outermost."""
        with ExitStack() as stack:
            for around in self.registry.around:
                stack.enter_context(around(run))
            yield

    def succeeded(self, run: Run, value: object) -> None:
        """The handler returned."""
        if run.completion is not None:
            self._completed(run, None, lambda: self.raised(run, NotCommitted()), value)
            return
        if run.noticed:
            self.raised(run, InterruptedError("the handler was told to stop and returned"))
            return
        again_at = None
        if run.job.hold == RECURS and isinstance(value, (timedelta, datetime)):
            try:
                again_at, value = self._again_at(value), None
            except InvalidOption as error:
                self.raised(run, error)
                return
        ended = time.monotonic_ns()
        run.phase = 2
        result = None
        if value is not None:
            value = run.definition.signature.dump_result(value)
            result = encode_result(value, max_bytes=self.max_result).text
        job = run.job
        lines = None if run.log_lines is None else run.log_text()
        settled = Settled(
            job.id,
            job.token,
            "succeeded",
            "succeeded",
            0,
            0,
            0,
            (ended - run.started_ns) // 1_000,
            0,
            None,
            None,
            None,
            None,
            result,
            lines,
            again_at,
        )
        self._conclude((run, ended, settled))

    def _again_at(self, value: timedelta | datetime) -> int:
        """When a recurring job shall run next, as its handler said by what it returned."""
        if isinstance(value, datetime):
            return to_us(value, "the next run that the handler returned")
        if value < timedelta(0):
            raise InvalidOption(f"the handler returned {value} as the time until its next run, and that is negative")
        return self.now_us() + micros(value)

    def raised(self, run: Run, error: BaseException) -> None:
        """The handler raised: a failure, a signal to steer, or because it was told to stop."""
        if run.completion is not None:
            self._completed(run, error, lambda: self.raised(run, error))
            return
        ended = time.monotonic_ns()
        run.phase = 2
        job, ran = run.job, run.ran_us(ended)
        if run.lost or run.fenced:  # it was stopped because the job may be another worker's now: the token will tell
            self._conclude((run, ended, outcome.released(job, ran)))
            return
        if run.timed_out and not isinstance(error, Steer):
            error = outcome.timed_out(job.timeout_us or 0).with_traceback(error.__traceback__)
        elif run.cancel_reason is not None and not isinstance(error, Steer):
            self._conclude((run, ended, outcome.cancelled(job, ran, run.cancel_reason, run.log_text())))
            return
        elif (run.stopping or run.stopped_for_nothing) and not isinstance(error, Steer):
            self._conclude((run, ended, outcome.released(job, ran)))
            return
        try:
            settled = self._judged(run, error, ran)
        except BaseException as another:  # of its own methods: a run that has ended must be recorded, its slot go on
            kinds = f"{type(error).__name__}, which raises {type(another).__name__} when it is looked at"
            error = WorkerError(f"the handler raised {kinds}")
            settled = self._judged(run, error, ran)
        if settled.outcome == "failed":
            _log_failure(run, settled)
        if settled.state == "failed" or (settled.outcome == "failed" and _gives_up_tick(run)):
            self._tell_failure(run, error)
        self._conclude((run, ended, settled))

    def _judged(self, run: Run, error: BaseException, ran_us: int) -> Settled:
        """What follows from an error, by the policy of the job or of its task."""
        # As this method does it, not by assignment: an error may be a frozen dataclass.
        BaseException.with_traceback(error, _from_handler(error.__traceback__))
        policy = run.definition.retry.with_max_attempts(run.job.max_attempts)
        if run.job.retry is not None:
            policy = _stored_policy(run, run.job.retry)
        return outcome.after_error(run.job, error, policy, ran_us=ran_us, log=run.log_text(), random=self._chance)

    def settled_elsewhere(self, run: Run, settled: Settled, *, told: bool) -> None:
        """A child process says what became of a run. `told`: it has called the failure hooks."""
        job, run.completion = run.job, None
        settled = settled._replace(id=job.id, token=job.token, log=run.log_text())
        if settled.state == "failed" and not told:
            error = WorkerError(f"{settled.error_kind}: {settled.error}")
            error.add_note(settled.traceback or "")
            self._tell_failure(run, error)
        self._end(run, settled)

    def died(self, run: Run, how: str) -> None:
        """The child process ended under its handler: because it was told to stop, or a crash that counts as one."""
        error = WorkerError(how)
        if run.completion is not None:
            self._completed(run, error, lambda: self.died(run, how))
            return
        if run.cancelled() or run.interrupted:
            self.raised(run, error)
            return
        ended = time.monotonic_ns()
        run.phase = 2
        ran, lines, limit = run.ran_us(ended), run.log_text(), self._crash_limit
        settled = outcome.after_child_death(run.job, how, crash_limit=limit, ran_us=ran, log=lines, random=self._chance)
        log.warning("job %s (%s): %s; %s", run.job.id, run.job.task, how, settled.reason or settled.state)
        if settled.state == "failed":
            self._tell_failure(run, error)
        self._conclude((run, ended, settled))

    def _completed(
        self, run: Run, error: BaseException | None, otherwise: Callable[[], None], value: object = None
    ) -> None:
        """The handler had ended its job in its own transaction: see whether that was committed, and if not, do this."""
        run.phase = 2
        self.afterwards.take(run, error, otherwise, value)

    def recorded_elsewhere(self, run: Run, settled: Settled, following: tuple[int | None, int] | None) -> None:
        """A child process says that a run was completed, and that it has seen that committed."""
        if run.completion is not None:
            run.completion.settled = settled._replace(id=run.job.id, token=run.job.token)
            run.completion.committed = True
            if following is not None:
                run.completion.following = type(run.completion.following)(*following)
        self.succeeded(run, None)

    def recorded(self, run: Run, settled: Settled, ended_ns: int) -> None:
        """A run is on record as completed: conclude it without writing anything."""
        run.recorded = True
        self._conclude((run, ended_ns, settled))

    @property
    def clock_offset(self) -> int:
        """How far the database's clock is ahead of this host's, in microseconds."""
        return self.now_us() - time.time_ns() // 1_000

    def _end(self, run: Run, settled: Settled) -> None:
        run.phase = 2
        self._conclude((run, time.monotonic_ns(), settled))

    def _tell_failure(self, run: Run, error: BaseException) -> None:
        """Call the failure hooks. A hook that raises is logged and changes nothing."""
        hooks = list(self.registry.on_failure)
        if run.definition.on_failure is not None:
            hooks.insert(0, run.definition.on_failure)
        for hook in hooks:
            run_hook_whatever(hook, run, error, on=self._tell_later)

    def _tell_later(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run an async failure hook: on the loop that this is called on, without waiting, or else on one of its own."""
        import asyncio  # here, so that `import duly` stays quick

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(coroutine)
            return

        async def tell() -> None:
            try:
                await coroutine
            except Exception:
                log.exception("on_failure hook %r raised", coroutine)

        task = loop.create_task(tell())
        self.telling.add(task)
        task.add_done_callback(self.telling.discard)


def _gives_up_tick(run: Run) -> bool:
    """Whether a recurring job goes on to its next tick after a failure, so that this one has failed for good."""
    return run.occurrence is not None and run.occurrence.failure == "advance"


def _log_failure(run: Run, settled: Settled) -> None:
    job, later = run.job, f"again in {human(timedelta(microseconds=settled.delay_us))}"
    if _gives_up_tick(run) or (run.recurring and settled.state != "scheduled"):
        later = "again at its next tick"
    elif settled.state != "scheduled":
        later = "not again"
    log.warning(
        "job %s (%s) run %s failed: %s: %s; %s",
        job.id,
        job.task,
        job.attempt if run.recurring else f"{job.attempt} of {job.max_attempts}",
        settled.error_kind,
        (settled.error or "")[:500],
        later,
    )


def _from_handler(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of the runner: people want to see where their own code begins."""
    kept = traceback
    while kept is not None and str(kept.tb_frame.f_globals.get("__name__", "")).startswith("duly.worker."):
        kept = kept.tb_next
    return kept or traceback


def _stored_policy(run: Run, data: str) -> Backoff:
    """The policy given at enqueue, with the exceptions that only this code knows."""
    stored = Backoff.from_data(data, run.job.max_attempts)
    declared = run.definition.retry
    if declared.to_data() == data:
        return declared.with_max_attempts(run.job.max_attempts)
    return stored
