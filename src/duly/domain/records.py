"""The values that pass between the layers: a job to store, a job claimed, a run that ended, a job as people see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from duly.domain.states import State

MINUTE_US = 60_000_000
HOLD = {"none": 0, "queued": 1, "live": 2, "window": 3, "recurs": 4, "spawns": 5}
"""What a job is held by beside its place: a unique key while queued, until it ends, or for a time; or its schedule, by
which it recurs, or which makes a job of its own for each tick."""


class NewJob(NamedTuple):
    """A job about to be stored. (A tuple: one is made per enqueue, and this takes a fifth of the time.)"""

    id: str
    task: str
    args: str
    queue: str = "default"
    tenant: str = ""
    priority: int = 0
    max_attempts: int = 5
    retry: str | None = None
    timeout_us: int | None = None
    run_at: int | None = None
    delay_us: int = 0
    expires_at: int | None = None
    expires_us: int | None = None
    enqueued_by: str | None = None
    tags: str | None = None
    headers: str | None = None
    unique_key: str | None = None
    unique_mode: str = "none"
    unique_scope: str = "none"
    unique_window_us: int | None = None
    limit_key: str | None = None


class Claimed(NamedTuple):
    """A job as a worker gets it. The order is that of the claim statement's columns."""

    id: str
    token: int
    attempt: int
    crashes: int
    queue: str
    tenant: str
    task: str
    priority: int
    run_at: int
    hold: int
    args: str
    max_attempts: int
    retry: str | None
    timeout_us: int | None
    expires_at: int | None
    created_at: int
    headers: str | None
    claimed_at: int
    limit_key: str | None
    rank: int


class Settled(NamedTuple):
    """How one run ended and where its job goes. The order is that of the settle statement's columns.

    `state` is where the job goes (succeeded, failed, cancelled, scheduled, queued), `outcome` what the run was.
    Durations, not instants: `ran_us` how long it ran (-1: never started), `age_us` how long ago it ended. Only
    `again_at` is an instant: when a recurring job shall run next because its handler or its rule says so.
    """

    id: str
    token: int
    state: str
    outcome: str
    delay_us: int = 0
    uncounted: int = 0
    crashes: int = 0
    ran_us: int = -1
    age_us: int = 0
    reason: str | None = None
    error_kind: str | None = None
    error: str | None = None
    traceback: str | None = None
    result: str | None = None
    log: str | None = None
    again_at: int | None = None
    block_us: int = 0
    """For how long the handler asked that nothing of its key, or of its task, starts; not stored with the run."""

    def aged(self, age_us: int) -> Settled:
        """The same, so long after it ended. For every run, so it must be quick: `_replace` takes twice as long."""
        return Settled._make((*self[:8], age_us, *self[9:]))


class Lapsed(NamedTuple):
    """A run whose worker is gone or whose lease has passed."""

    id: str
    token: int
    attempt: int
    crashes: int
    worker_id: str
    max_attempts: int
    retry: str | None
    why: str
    hold: int
    limit_key: str | None = None


class Lane(NamedTuple):
    """Where a claim may take from: one task of one tenant, and the rank and id to start at."""

    tenant: str
    task: str
    from_rank: int = -(2**63)
    from_id: str = "00000000-0000-0000-0000-000000000000"


class Pause(NamedTuple):
    """A queue, a task or a tenant that is paused."""

    scope: str
    name: str
    since: int
    until: int | None
    by: str | None
    reason: str | None


class QueueRecord(NamedTuple):
    """What was said of a queue; a horizon of None is the default."""

    name: str
    horizon_us: int | None
    fair: bool


class Standing(NamedTuple):
    """How a tenant stands. No more than some jobs of each kind are counted."""

    weight: float
    waiting: int
    running: int
    parked: int
    paused_at: int | None


class Enqueued(NamedTuple):
    """The answer to an enqueue: the job that stands for it, and whether it is a new one."""

    id: str
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as it stands in the database."""

    id: str
    task: str
    queue: str
    tenant: str
    args: str
    priority: int
    max_attempts: int
    retry: str | None
    timeout_us: int | None
    expires_at: int | None
    created_at: int
    enqueued_by: str | None
    unique_key: str | None
    tags: str | None
    headers: str | None
    state: State
    run_at: int | None
    token: int
    attempt: int
    crashes: int
    claimed_at: int | None
    finished_at: int | None
    worker_id: str | None
    cancel_at: int | None
    progress: float | None
    progress_text: str | None
    reason: str | None
    detail: str | None


class RunRecord(NamedTuple):
    """One execution of a job."""

    job_id: str
    token: int
    attempt: int
    outcome: str
    started_at: int
    finished_at: int
    worker_id: str
    error_kind: str | None
    error: str | None
    traceback: str | None
    result: str | None
    log: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """What tells one process from every other, on any host, after any restart."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    process_started_at: str


class Skew(NamedTuple):
    """How a host's clock goes beside the database's, in microseconds."""

    ahead_us: int
    doubt_us: int
    """How much of that may be the way there and back."""

    @classmethod
    def between(cls, before_us: int, server_us: int, after_us: int) -> Skew:
        """From the host's clock before and after the database was asked for its own."""
        return cls((before_us + after_us) // 2 - server_us, (after_us - before_us) // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker as it stands in the database."""

    id: str
    process: ProcessIdentity
    started_at: int
    seen_at: int
    lease_us: int
    queues: str
    tasks: str
    slots: int
    wake: str | None
    idle: bool
    state: str
    version: str
    silent_us: int = 0
    skew: Skew | None = None
    capacity: str | None = None
    """How its slots are divided, as JSON; None if it does not say."""
    memory_bytes: int | None = None
    """How much memory its process had when it was last seen; None if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which jobs a list is about."""

    state: State | None = None
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    tag: str | None = None
    text: str | None = None
    since_us: int | None = None
    """Only jobs made since; where the state is one in which jobs end, those that ended since."""
    until_us: int | None = None
    before_at: int | None = None
    """With `before_id`: where the page before ended, in a list of jobs that have ended."""
    before_id: str | None = None
    limit: int = 100
    offset: int = 0
    look: int | None = None
    """At how many jobs to look at most; None: at all of them. For a text: at how many that fit the rest."""
    walk: int = 100_000
    """How many jobs to pass at most to find those, where a text is looked for among few; more if in any state."""


class Cursor(NamedTuple):
    """Where a page of a list ended: when the last job on it ended, if it is a list of such, and its id."""

    at: int | None
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list."""

    jobs: list[JobRecord]
    following: Cursor | None
    """Where the next page begins; None at the end."""
    looked: int | None
    """At how many jobs it looked; None: the page is full before that mattered, or there are no more."""
    gave_up: bool = False
    """Whether there are more, at which it did not look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many jobs stand where, now."""

    waiting: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    scheduled: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    running: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    parked: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
