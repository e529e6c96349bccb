"""A periodic sweep: enqueues what has not been refreshed for long, each target at most once at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from duly.domain.clock import from_us
from duly.domain.durations import to_timedelta
from duly.domain.errors import ConfigurationError, InvalidOption
from duly.store.call import Dialect, Foreign, Op, Rows
from duly.store.ops_mirrors import missing_params
from duly.worker.context import current_job

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.task import Task

Duration = timedelta | int | float | str
Stale = str | Callable[[datetime], Iterable[Mapping[str, Any]]]


def declare_sweep(
    app: Duly, task: Task[..., Any], *, stale: Stale, older_than: Duration, every: Duration, key: str, batch: int
) -> Task[..., Any]:
    """Declare the recurring task that sweeps. Returns it."""
    age = to_timedelta(older_than, "older_than")
    if batch < 1:
        raise InvalidOption(f"batch must be a whole number from 1 on, not {batch!r}")
    if not isinstance(stale, str) and not callable(stale):
        raise InvalidOption(f"stale must be SQL or a function of a time, not {stale!r}")
    if isinstance(stale, str) and (missing := missing_params(stale, {"before": None})):
        raise InvalidOption(missing)
    name = f"sweep:{task.name}" + (f":{key}" if key else "")
    parameters = task.definition.signature.names

    def sweep() -> int:
        """Enqueue what is stale."""
        now = from_us(app.store.now_us())
        before = now - age
        targets = _by_sql(app, stale, before, parameters) if isinstance(stale, str) else iter(stale(before))
        once = task.using(unique=True, enqueued_by=name)
        found = 0
        while page := list(islice(targets, batch)):
            found += sum(job.created for job in once.enqueue_many(page))
            current_job().progress(None, f"{found} enqueued")
        return found

    sweep.__module__ = task.definition.fn.__module__
    return app.recurring(every=every, description=f"Enqueue {task.name} for what is stale")(
        app.declare(sweep, {"name": name, "queue": task.definition.queue})
    )


def _by_sql(app: Duly, sql: str, before: datetime, parameters: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The rows of the application's own query as arguments, in the order of the task's parameters."""
    when: object = before if app.store.dialect is Dialect.POSTGRES else before.astimezone(UTC).isoformat(sep=" ")
    rows = app.store.database.read(lambda: _query(sql, {"before": when}))
    for row in rows:
        if len(row) > len(parameters):
            raise ConfigurationError(
                f"the stale query returns {len(row)} columns, and the task takes {len(parameters)} arguments "
                f"({', '.join(parameters)}). Select one column per argument, in that order"
            )
        yield dict(zip(parameters, row, strict=False))


def _query(sql: str, params: Mapping[str, object]) -> Op[Rows]:
    return (yield Foreign(sql, params))
