"""Functions registered at run time, for one tenant's job each; and the worker that `start` and `stop` mean.

The schedule is stored, the function is not: a process runs only what it registered itself. Over the same rows, claim
and worker as every other recurring job: the task is named after the id, the lane is (tenant, that name).
"""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from duly.domain.errors import AlreadyRegistered, InvalidOption, NotRegistered, WorkerError
from duly.domain.names import check_task_name, check_tenant, check_text
from duly.domain.signature import Signature
from duly.domain.text import safe_repr
from duly.recurring import RecurringJob
from duly.recurring_options import KEY_BYTES
from duly.task import Task
from duly.worker.context import current_job
from duly.worker.registry import Home, Kind, TaskDefinition, is_coroutine_function

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.embedded import EmbeddedWorker
    from duly.store.call import Op
    from duly.store.ops_recurring import Recurring

PREFIX = "registered:"


class Registered:
    """What this process has registered, and its worker."""

    def __init__(self, app: Duly) -> None:
        self._app = app
        self._lock = threading.Lock()  # never held over a call to the database
        self._jobs: dict[tuple[str, str], RecurringJob | None] = {}  # None: being registered
        self._starting = threading.Lock()
        self._worker: EmbeddedWorker | None = None

    def register(
        self,
        tenant: str,
        id: str,
        start_at: datetime,
        repeat_every: timedelta | int | float | str,
        fn: Callable[..., Any],
        **options: Any,
    ) -> RecurringJob:
        """Store the schedule and attach the function."""
        place = (check_tenant(tenant), _check_id(id))
        if not callable(fn):
            raise InvalidOption(f"register() needs a function, not {safe_repr(fn)}")
        definition = _definition(id, fn, log_lines=self._app.settings.log_lines, home=self._app.home)
        task: Task[..., Any] = Task(self._app, definition).using(timeout=options.pop("timeout", None))
        given = {"failure": "advance", **options, "tenant": place[0]}
        new = task.new_recurring(id, every=repeat_every, start_at=start_at, **given)
        with self._lock:
            if place in self._jobs:
                raise AlreadyRegistered(
                    f"job {id!r} of tenant {tenant!r} is registered in this process already. Unregister it first"
                )
            self._jobs[place] = None
        try:
            job = self._app.make_recurring(new, None)
        except BaseException:
            with self._lock:
                del self._jobs[place]
            raise
        with self._lock:
            self._jobs[place] = job
            self._app.registry.register(place[0], definition)
        return job

    def unregister(self, tenant: str, id: str) -> None:
        """Remove the job everywhere. The function stays should that fail, so that it can be repeated."""
        with self._lock:
            if self._jobs.get((tenant, id)) is None:
                raise NotRegistered(
                    f"this process has not registered job {safe_repr(id)} of tenant {safe_repr(tenant)}"
                )

        def op(ops: Recurring) -> Op[None]:  # by its key: another process may have removed it and made it anew
            found = yield from ops.find(tenant, task_name(id), id)
            if found is not None:
                yield from ops.delete(found.id)

        self._app.change_recurring(op, None)
        with self._lock:
            self._jobs.pop((tenant, id), None)
            self._app.registry.registered.pop((tenant, task_name(id)), None)

    def start(self, queues: object = None, **overrides: Any) -> None:
        """Start the worker. What it calls at its start may register."""
        with self._starting:
            if self._worker is not None:
                raise WorkerError("start() was called before, and not stop(). Call stop() first")
            worker = self._app.worker(queues, **overrides)
            worker.start()
            self._worker = worker

    def stop(self, grace: float | None = None) -> None:
        """Stop the worker."""
        with self._starting:
            worker, self._worker = self._worker, None
        if worker is None:
            raise WorkerError("stop() was called without start()")
        worker.stop(grace)


def task_name(id: str) -> str:
    """The name of the task that stands for an id; of one with unusual characters, a digest."""
    try:
        return check_task_name(PREFIX + id)
    except InvalidOption:
        return PREFIX + hashlib.sha256(id.encode()).hexdigest()[:40]


def _check_id(id: str) -> str:
    if id == "":
        raise InvalidOption("the id of a registered job must not be empty")
    return check_text(id, "id", KEY_BYTES)


def _definition(
    id: str, fn: Callable[..., Any], *, log_lines: int, home: Callable[[], Home] | None = None
) -> TaskDefinition:
    is_async = is_coroutine_function(fn)
    handler = _handler(fn, is_async=is_async)
    signature = Signature.of(handler)
    return TaskDefinition(
        name=task_name(id),
        fn=handler,
        signature=signature,
        kind=Kind.ASYNC if is_async else Kind.THREAD,
        log_lines=log_lines,
        by_keyword=signature.by_keyword,
        home=home,
    )


def _handler(fn: Callable[..., Any], *, is_async: bool) -> Callable[[], Any]:
    """Call the function with nothing, or with the job if it takes one argument."""
    needed = [
        each.name
        for each in inspect.signature(fn).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(needed) > 1:
        raise InvalidOption(
            f"a registered function takes nothing, or the job: {safe_repr(fn)} needs {', '.join(needed)}. "
            "Bind the others, for example with functools.partial"
        )
    takes_job = len(needed) == 1
    if is_async:

        async def run_async() -> Any:
            return await (fn(current_job()) if takes_job else fn())

        return run_async

    def run() -> Any:
        return fn(current_job()) if takes_job else fn()

    return run
