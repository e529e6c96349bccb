"""Assertions about what is enqueued. Where one fails, its message lists what is there, the nearest first."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from duly.admin import MOST_LISTED
from duly.app import Duly
from duly.domain.errors import ArgumentError, ArgumentsDoNotFit
from duly.domain.json import Misfit, encode_args
from duly.domain.names import suggest
from duly.domain.states import State
from duly.domain.text import safe_repr
from duly.job import Job
from duly.task import Task
from duly.worker.registry import TaskDefinition

MOST_SHOWN = 10
ABOUT = timedelta(seconds=1)  # a time cannot be hit exactly on a clock that runs
MISSING = "missing"


def enqueued(jobs: Duly, task: Task[..., Any] | str | None = None) -> list[Job[Any]]:
    """The jobs that wait to run, now or later, in the order they were enqueued; those of one task if asked."""
    name = None if task is None else _definition(jobs, task).name
    found = [job for state in (State.QUEUED, State.SCHEDULED) for job in _listed(jobs, state, name)]
    return sorted(found, key=lambda job: job.id)


def assert_enqueued(
    jobs: Duly,
    task: Task[..., Any] | str,
    *,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    count: int | None = None,
    run_at: datetime | None = None,
    tag: str | None = None,
) -> list[Job[Any]]:
    """Fail unless such a job waits to run; with `count`, unless exactly so many do. Returns them.

    `args`: the arguments named must be equal, others may be anything. `tenant=""`: nobody's in particular. `run_at`: to
    the microsecond with a `TestClock`, else within a second.
    """
    __tracebackhide__ = True
    wanted = _Wanted(jobs, _definition(jobs, task), args or {}, queue, tenant, run_at, tag)
    waiting = enqueued(jobs)
    found = [job for job in waiting if not wanted.differences(job)]
    if len(found) != count if count is not None else not found:
        number = "no job" if not found else f"{len(found)} job{'s' if found[1:] else ''}"
        expected = "" if count is None else f", not {count}"
        raise AssertionError(f"{number} enqueued{expected}: {wanted}\n{_what_is_there(jobs, waiting, wanted)}")
    return found


def assert_not_enqueued(
    jobs: Duly,
    task: Task[..., Any] | str,
    *,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    run_at: datetime | None = None,
    tag: str | None = None,
) -> None:
    """Fail if such a job waits to run."""
    __tracebackhide__ = True
    assert_enqueued(jobs, task, args=args, queue=queue, tenant=tenant, count=0, run_at=run_at, tag=tag)


# -- what is wanted -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a job must be like."""

    jobs: Duly
    task: TaskDefinition
    args: Mapping[str, Any]
    queue: str | None
    tenant: str | None
    run_at: datetime | None
    tag: str | None

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.task.fn).parameters
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            return
        for name in self.args:
            if name not in parameters:
                raise ArgumentError(f"{self.task.name}() has no parameter {name!r}.{suggest(name, parameters)}")

    def __str__(self) -> str:
        options = {"queue": self.queue, "tenant": self.tenant, "run_at": self.run_at, "tag": self.tag}
        given = [f", {name} {_shown(value)}" for name, value in options.items() if value is not None]
        return f"{_call(self.task.name, self.args)}{''.join(given)}"

    def differences(self, job: Job[Any]) -> list[str]:
        """In what a job is not as wanted."""
        if job.task != self.task.name:
            return [f"task is {job.task!r}", *self._differing_options(job)]
        return [*self._differing_args(job), *self._differing_options(job)]

    def _differing_args(self, job: Job[Any]) -> list[str]:
        if not self.args:
            return []
        present = _arguments(self.task, job)
        return [
            f"{name} is {_shown(present[name]) if name in present else MISSING}"
            for name, value in self.args.items()
            if name not in present or not self._same(name, value, present[name])
        ]

    def _same(self, name: str, wanted: object, present: object) -> bool:
        """Whether two values are equal, or would be stored as the same JSON."""
        if type(wanted) is type(present) and wanted == present:
            return True
        codec = self.task.signature.fields.codecs.get(name)
        if codec is None:
            return wanted == present
        try:
            one, other = (codec.convert(value, True) for value in (wanted, present))
            return encode_args({name: one}) == encode_args({name: other})
        except (Misfit, ArgumentError):
            return False

    def _differing_options(self, job: Job[Any]) -> list[str]:
        found = []
        if self.queue is not None and job.queue != self.queue:
            found.append(f"queue is {job.queue!r}")
        if self.tenant is not None and job.tenant != (self.tenant or None):
            found.append(f"tenant is {job.tenant!r}")
        if self.run_at is not None and not self._on_time(job, self.run_at):
            found.append(f"run_at is {_shown(job.run_at)}")
        if self.tag is not None and self.tag not in job.tags:
            found.append(f"tags are {job.tags}")
        return found

    def _on_time(self, job: Job[Any], run_at: datetime) -> bool:
        about = timedelta(0) if self.jobs.clock.manual else ABOUT
        return job.run_at is not None and abs(job.run_at - run_at) <= about


def _definition(jobs: Duly, task: Task[..., Any] | str) -> TaskDefinition:
    """A task by itself or by its name. One that is not known is an error, else a wrong name were "not enqueued"."""
    return jobs.registry.get(task if isinstance(task, str) else task.name)


def _arguments(task: TaskDefinition, job: Job[Any]) -> dict[str, Any]:
    """What the handler would be called with, by name, defaults included; as stored if it no longer fits the task."""
    try:
        args, kwargs = task.signature.split(task.signature.load(job.args))
    except ArgumentsDoNotFit:
        return job.args
    signature = inspect.signature(task.fn)
    bound = signature.bind_partial(*args, **kwargs)
    bound.apply_defaults()
    values = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            values |= values.pop(name)
    return values


# -- what is there ------------------------------------------------------------------------------------------------


def _what_is_there(jobs: Duly, waiting: list[Job[Any]], wanted: _Wanted) -> str:
    """The jobs that wait, nearest first; of those of the task that have run, how many."""
    told = [(wanted.differences(job), job) for job in waiting]
    told.sort(key=lambda each: (each[1].task != wanted.task.name, len(each[0])))
    lines = [f"  {_line(job)}{_because(differences)}" for differences, job in told[:MOST_SHOWN]]
    if told[MOST_SHOWN:]:
        lines.append(f"  ... and {len(told) - MOST_SHOWN} more")
    head = "These are enqueued:" if lines else "Nothing is enqueued."
    return "\n".join([head, *lines, *_no_longer_waiting(jobs, wanted.task.name)])


def _no_longer_waiting(jobs: Duly, task: str) -> list[str]:
    states = [state for state in State if state not in (State.QUEUED, State.SCHEDULED)]
    counts = [(len(_listed(jobs, state, task)), state) for state in states]
    told = ", ".join(f"{n} {state}" for n, state in counts if n)
    return [f"No longer waiting, of {task}: {told}."] if told else []


def _listed(jobs: Duly, state: State, task: str | None) -> list[Job[Any]]:
    """All jobs in a state, page by page."""
    found: list[Job[Any]] = []
    while True:
        last = found[-1].id if found else None
        page = jobs.list(state=state, task=task, before=last, limit=MOST_LISTED)
        found += page
        if len(page) < MOST_LISTED:
            return found


def _line(job: Job[Any]) -> str:
    when = "" if job.state is State.QUEUED else f", {job.state} for {_shown(job.run_at)}"
    parked = f", parked: {job.reason}" if job.state is State.QUEUED and job.reason else ""
    whose = "" if job.tenant is None else f", tenant {job.tenant!r}"
    tags = "" if not job.tags else f", tags {job.tags}"
    return f"{_call(job.task, job.args)}, queue {job.queue!r}{whose}{tags}{when}{parked}"


def _because(differences: list[str]) -> str:
    return f"  <- {'; '.join(differences)}" if differences else "  <- matches"


def _call(task: str, args: Mapping[str, Any]) -> str:
    return f"{task}({', '.join(f'{name}={_shown(value)}' for name, value in args.items())})"


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else safe_repr(value)
