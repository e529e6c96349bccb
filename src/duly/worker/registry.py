"""What a process knows how to run. Names are keys, never import paths: nothing stored can name code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from duly.domain.errors import ConfigurationError, DuplicateTask, UnknownTask
from duly.domain.limits import NOTHING, Gate, Says
from duly.domain.names import suggest
from duly.domain.recurring import NewRecurring
from duly.domain.retry import DEFAULT, Backoff
from duly.domain.signature import Signature
from duly.domain.usage import UsageRecord

if TYPE_CHECKING:
    from duly.store.store import Store


class Kind(StrEnum):
    """Where a handler runs."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """How much of a task may run and start at once, as its declaration says."""

    all: Says = NOTHING
    """What holds for all its jobs together."""
    each: Says = NOTHING
    """What holds for the jobs of each key."""
    key: Callable[[Any], object] | None = None
    """The key of a job, from its arguments."""
    group: str | None = None
    """Whose keys they are; None for this task's own, by tenant."""

    @property
    def keyed(self) -> bool:
        """Whether its jobs have keys."""
        return self.key is not None or not self.each.nothing


NO_LIMITS = TaskLimits()


class Home(NamedTuple):
    """Where the jobs of a task are stored: what a handler needs to complete its job by itself."""

    store: Store
    max_result: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    """A registered function and how its jobs run unless the enqueuer says otherwise."""

    name: str
    fn: Callable[..., Any]
    signature: Signature
    kind: Kind
    queue: str = "default"
    priority: int = 0
    retry: Backoff = DEFAULT
    timeout_us: int | None = None
    expires_us: int | None = None
    limits: TaskLimits = NO_LIMITS
    on_failure: Callable[[Any, BaseException], object] | None = None
    log_lines: int = 1_000
    by_keyword: bool = True
    """Whether stored arguments can be passed as keywords as they are."""
    mirror: str | None = None
    """What must happen beside every change of this task's recurring jobs."""
    home: Callable[[], Home] | None = None
    """Where its jobs are stored; None for one of which only the function was found."""


Around = Callable[[Any], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A recurring job that must exist from start-up."""

    task: str
    module: str
    new: NewRecurring


@dataclass(slots=True)
class Registry:
    """The tasks and hooks of one `Duly`."""

    tasks: dict[str, TaskDefinition] = field(default_factory=dict)
    on_start: list[Callable[[], object]] = field(default_factory=list)
    on_stop: list[Callable[[], object]] = field(default_factory=list)
    on_failure: list[Callable[[Any, BaseException], object]] = field(default_factory=list)
    on_usage: list[Callable[[list[UsageRecord]], object]] = field(default_factory=list)
    on_alert: list[Callable[[Any], object]] = field(default_factory=list)
    around: list[Around] = field(default_factory=list)
    registered: dict[tuple[str, str], TaskDefinition] = field(default_factory=dict)
    """Functions for one tenant's job each, by (tenant, task): what `register` was given."""
    declarations: list[Declaration] = field(default_factory=list)
    mirror_hooks: dict[str, Callable[..., object]] = field(default_factory=dict)
    watchers: list[Callable[[TaskDefinition], None]] = field(default_factory=list)
    """Workers under way, who must learn of what is registered meanwhile."""

    def find(self, tenant: str, task: str) -> TaskDefinition | None:
        """What runs the jobs of a lane; None if this process cannot."""
        return self.tasks.get(task) or self.registered.get((tenant, task))

    def knows(self, tenant: str, task: str) -> bool:
        """Whether this process can run the jobs of a lane."""
        return task in self.tasks or (tenant, task) in self.registered

    def register(self, tenant: str, definition: TaskDefinition) -> None:
        """Add a function for one tenant's job, and have workers under way learn of it."""
        self.registered[tenant, definition.name] = definition
        for watcher in list(self.watchers):
            watcher(definition)

    def add(self, definition: TaskDefinition) -> None:
        """Register a task; a second function under the same name is refused."""
        present = self.tasks.get(definition.name)
        if present is not None and not _same_function(present.fn, definition.fn):
            raise DuplicateTask(
                f"task {definition.name!r} is already registered for {_where(present.fn)}, "
                f"and again for {_where(definition.fn)}. "
                "Give one of them another name: @jobs.task(name=...)"
            )
        self.tasks[definition.name] = definition

    def get(self, name: str) -> TaskDefinition:
        """Find a task by its exact name."""
        try:
            return self.tasks[name]
        except KeyError:
            raise UnknownTask(
                f"no task is named {name!r} here.{suggest(name, self.tasks)} "
                f"Known: {', '.join(sorted(self.tasks)) or 'none'}"
            ) from None

    def add_around(self, function: Callable[[Any], object]) -> None:
        """Register middleware: a context manager factory, or a generator function with one yield."""
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"middleware {_where(function)} is async, and it surrounds `def` tasks too. "
                "Write a plain generator with one yield: around an `async def` task it runs on the loop"
            )
        if inspect.isgeneratorfunction(function):
            self.around.append(contextmanager(function))
        else:
            self.around.append(function)  # type: ignore[arg-type]

    def limits(self) -> list[tuple[Gate, Says]]:
        """What the code says of limits, for every task, also where that is nothing."""
        said: dict[Gate, Says] = {}
        for task in (*self.tasks.values(), *self.registered.values()):
            limits = task.limits
            said["task", task.name] = limits.all._replace(meters_keys=limits.each.rate_n is not None)
            group = ("keys", limits.group or task.name)
            if not limits.each.nothing or group not in said:
                said[group] = limits.each
        return sorted(said.items())

    def key_groups(self) -> dict[str, str]:
        """Whose keys the jobs of each task have that have any."""
        tasks = (*self.tasks.values(), *self.registered.values())
        return {task.name: task.limits.group or task.name for task in tasks if task.limits.keyed}

    def __iter__(self) -> Iterator[TaskDefinition]:
        return iter(self.tasks.values())


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Whether calling it gives a coroutine: an `async def`, an object whose call is one, or a partial of either."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _where(fn: Callable[..., object]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', fn)}"


def _same_function(one: Callable[..., object], other: Callable[..., object]) -> bool:
    """Whether two functions are one and the same by source: a module that is loaded again may register again."""
    first, second = getattr(one, "__code__", None), getattr(other, "__code__", None)
    if first is None or second is None:
        return one is other
    return bool(first.co_filename == second.co_filename and first.co_firstlineno == second.co_firstlineno)
