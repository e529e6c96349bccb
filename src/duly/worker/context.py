"""The job that is being run, as its handler sees it: `current_job()`."""

from __future__ import annotations

import json
import threading
import time
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING

from duly.domain.clock import SystemClock, from_us
from duly.domain.errors import DulyError
from duly.domain.records import HOLD, Claimed
from duly.domain.recurring import Occurrence
from duly.domain.text import clean_text

if TYPE_CHECKING:
    import asyncio

    from duly.worker.completing import Completing, Completion
    from duly.worker.registry import TaskDefinition

LOG_BYTES = 65_536


class Run:
    """One execution under way. Handlers meet it as `current_job()`; the worker steers it."""

    __slots__ = (
        "_progress",
        "asyncio_task",
        "bound",
        "came_at",
        "came_ns",
        "cancel_event",
        "cancel_reason",
        "child",
        "completion",
        "definition",
        "fenced",
        "hurried",
        "interrupted",
        "job",
        "late",
        "leased_at",
        "limited",
        "log_bytes",
        "log_lines",
        "lost",
        "noticed",
        "occurrence",
        "phase",
        "rated",
        "recorded",
        "started_ns",
        "stopping",
        "thread_id",
        "timed_out",
    )

    def __init__(self, job: Claimed, definition: TaskDefinition, leased_at: float) -> None:
        self.job = job
        self.definition = definition
        self.occurrence: Occurrence | None = None  # what a recurring job's run is for
        self.leased_at = leased_at  # on `lease_time`, read before the claim or renewal was sent
        self.came_at = leased_at  # the same, when the claim was answered, if it was made under a rate
        self.came_ns = 0  # when it was handed to its runner, until it is taken back
        self.bound: tuple[tuple[str, str], ...] = ()  # the limits that it was claimed under
        self.rated = False  # whether a rate is among them, so that it must start at once or not at all
        self.late = False  # whether it was given back because it could not
        self.hurried = False  # whether others wait for its place, so that its end is written at once
        self.limited = False  # whether it was claimed under a limit, so that its end may let another start
        self.started_ns = 0
        self.phase = 0  # 0 waits in this process, 1 runs, 2 has ended
        self.cancel_event: threading.Event | None = None
        self.cancel_reason: str | None = None
        self.lost = False  # another worker has the job
        self.fenced = False  # nobody could confirm the lease in time; that may still be mended
        self.stopping = False
        self.timed_out = False
        self.noticed = False  # the handler has been told that it should stop
        self.interrupted = False  # its coroutine was cancelled or its child process killed: it cannot go on
        self.asyncio_task: asyncio.Task[object] | None = None
        self.thread_id: int | None = None
        self.child: object | None = None
        self.completion: Completion | None = None  # it was completed in a transaction of its handler's, if that commits
        self.recorded = False  # and that has committed: there is nothing left to settle
        self.log_lines: list[str] | None = None
        self.log_bytes = 0
        self._progress: tuple[float | None, str | None] | None = None

    # -- what handlers use ------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.job.task

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self.job.queue

    @property
    def tenant(self) -> str:
        """Whose job it is; empty if nobody's in particular."""
        return self.job.tenant

    @property
    def attempt(self) -> int:
        """Which run this is, from 1."""
        return self.job.attempt

    @property
    def max_attempts(self) -> int:
        """How many runs it may have."""
        return self.job.max_attempts

    @property
    def fence(self) -> int:
        """A number that grows with every claim of this job: other systems can refuse a run that was overtaken."""
        return self.job.token

    @property
    def run_at(self) -> datetime:
        """When it was due."""
        return from_us(self.job.run_at)

    @property
    def recurring(self) -> bool:
        """Whether the job becomes due again when this run ends."""
        return self.job.hold == HOLD["recurs"]

    @property
    def tick(self) -> datetime | None:
        """The occurrence of its schedule that this run is for; None if it has no schedule.

        One run that stands for several missed ticks has the last of them; one that a person asked for, when they did.
        """
        job, occurrence = self.job, self.occurrence
        if occurrence is not None:
            from duly.schedule.plan import tick_of_run

            started = job.claimed_at
            return from_us(tick_of_run(occurrence.tick_at, job.run_at, started, occurrence, occurrence.misfire))
        if job.headers is None:
            return None
        tick = json.loads(job.headers).get("tick")
        return None if tick is None else from_us(tick)

    @property
    def deadline(self) -> float | None:
        """When its time is up, on `time.monotonic()`; None without a timeout."""
        if self.job.timeout_us is None:
            return None
        return (self.started_ns + self.job.timeout_us * 1_000) / 1e9

    def cancelled(self) -> bool:
        """Whether this run should stop: cancelled by a person, its lease lost, its time up, or the worker stopping.

        A handler that has seen True and returns counts as stopped, not as succeeded.
        """
        if self.should_stop:
            self.noticed = True
        return self.noticed

    def wait_cancelled(self, timeout: float) -> bool:
        """Sleep up to `timeout` seconds, less if this run should stop. Returns whether it should."""
        if self.cancel_event is None:
            self.cancel_event = threading.Event()
        if not self.cancelled():
            self.cancel_event.wait(timeout)
        return self.cancelled()

    def completing(self, connection: object) -> Completing:
        """Complete this job in your own transaction: what the block writes and the job's success commit together.

            with psycopg.connect(url) as conn:  # commits at the end
                with current_job().completing(conn) as completion:
                    conn.execute("UPDATE accounts SET ...")
                    completion.result = {"paid": 42}

        `connection` leads to the database that the jobs are in; `async with` for an asynchronous one. When the block
        ends, the job is ended on that connection, if this run still owns it: else `StaleRun` or `JobCancelled` is
        raised, and you must not commit. If you roll back, or the block raises, the job goes on as if it had never been
        completed. Where no transaction is open and the connection commits by itself, the block is one of its own.
        """
        from duly.worker.completing import Completing

        return Completing(self, connection)

    def progress(self, fraction: float | None, text: str | None = None) -> None:
        """Say how far this run has come (0 to 1) and what it does; shown to people, written about twice a second."""
        if fraction is not None:
            fraction = min(1.0, max(0.0, float(fraction)))
        self._progress = (fraction, None if text is None else clean_text(text, 500))

    def log(self, line: str) -> None:
        """Keep a line with this run. Lines of the logging module are kept by themselves."""
        if self.log_lines is None:
            self.log_lines = []
        line = clean_text(line, 8_192)
        size = len(line) + 1
        if self.log_bytes + size > LOG_BYTES or len(self.log_lines) >= self.definition.log_lines:
            if self.log_lines and self.log_lines[-1] != "...":
                self.log_lines.append("...")
            return
        self.log_bytes += size
        self.log_lines.append(line)

    # -- what the worker uses ---------------------------------------------------------------------------------

    def take_progress(self) -> tuple[float | None, str | None] | None:
        """The progress that has not been written yet."""
        pending, self._progress = self._progress, None
        return pending

    def announce_completion(self) -> None:
        """The handler is about to end its job itself. In a child process, the worker must know before that is seen."""

    def log_text(self) -> str | None:
        """The lines kept, as one text."""
        return None if self.log_lines is None else "\n".join(self.log_lines)

    def ran_us(self, ended_ns: int) -> int:
        """How long it ran."""
        return (ended_ns - self.started_ns) // 1_000

    def flag(self) -> None:
        """Wake a handler that sleeps in `wait_cancelled`."""
        if self.cancel_event is not None:
            self.cancel_event.set()

    @property
    def should_stop(self) -> bool:
        """Whether there is a reason to stop, known to the handler or not."""
        return self.cancel_reason is not None or self.lost or self.fenced or self.timed_out or self.stopping

    @property
    def stopped_for_nothing(self) -> bool:
        """Whether the handler was made to stop, and there is no reason any more: its lease was in doubt, and held."""
        return (self.noticed or self.interrupted) and not self.should_stop

    def regain(self) -> None:
        """The lease holds after all: go on, unless the handler knows better."""
        self.fenced = False
        if self.cancel_event is not None and not (self.noticed or self.should_stop):
            self.cancel_event.clear()

    def start(self) -> None:
        """Note that the handler starts. The time first: whoever sees that it runs reckons from there."""
        self.started_ns = time.monotonic_ns()
        self.phase = 1


_CLOCK = SystemClock()


def lease_time() -> float:
    """Seconds on the clock of leases: it never steps, and goes on while the machine sleeps."""
    return _CLOCK.lease_us() / 1e6


CURRENT: ContextVar[Run | None] = ContextVar("duly_current_job", default=None)


def current_job() -> Run:
    """The job whose handler is running here. An error outside a handler."""
    run = CURRENT.get()
    if run is None:
        raise DulyError("current_job() was called outside a job. It works only inside a task that a worker runs")
    return run
