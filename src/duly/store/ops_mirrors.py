"""Mirrors: what a task wants done beside every change of its recurring jobs, in the same transaction.

A statement in the application's words, a Python hook that this process may have, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from duly.domain.clock import from_us
from duly.domain.errors import InvalidOption, MirrorFailed, MirrorHookMissing
from duly.domain.names import suggest
from duly.domain.recurring import Change
from duly.store.call import FAILED, Call, Dialect, Foreign, Op, Rows
from duly.store.statements import names_in

Hooks = Mapping[str, Callable[[Change, "Execute"], object]]
Execute = Callable[[str, Mapping[str, object]], None]
HOOK_MISSING = "duly: hook missing"
"""Stands for an SQLSTATE where it is this process that lacks something."""


@dataclass(frozen=True, slots=True)
class Mirrors:
    """The mirrors of one dialect, with the Python hooks that this process has."""

    dialect: Dialect
    hooks: Hooks

    def mirror(self, change: Change) -> Op[None]:
        """Do beside a change what the task wants done beside it. If that fails the change is not made."""
        rows = yield Call("mirror_of", {"task": change.task})
        if not rows:
            return
        error = yield from self.mirror_with(change, rows[0][0], bool(rows[0][1]))
        if error is not None and error[0] == HOOK_MISSING:
            raise MirrorHookMissing(error[1])
        if error is not None:
            raise MirrorFailed(f"the mirror of task {change.task!r} failed for key {change.key!r}: {error[1]}")

    def mirror_with(self, change: Change, sql: object, hook: bool) -> Op[tuple[str | None, str] | None]:
        """The same with the mirror at hand. Returns what went wrong as (SQLSTATE, text), or None."""
        if sql is not None:
            params = mirror_params(change, self.dialect)
            if missing := missing_params(str(sql), params):
                return None, missing
            error = _error((yield Foreign(str(sql), params, caught=True, untyped=True)))
            if error is not None:
                return error
        if not hook:
            return None
        function = self.hooks.get(change.task)
        if function is None:
            return HOOK_MISSING, (
                f"task {change.task!r} has a Python hook that must see every change of its recurring jobs, and this "
                "process has not loaded it. Make the change where the hook is, with --app on the command line; if it "
                f"is gone from the code: jobs.forget_mirror_hook({change.task!r})"
            )
        wanted: list[Foreign] = []

        def execute(sql: str, params: Mapping[str, object]) -> None:
            if missing := missing_params(sql, params):
                raise InvalidOption(missing)
            wanted.append(Foreign(sql, params, caught=True))

        try:
            function(change, execute)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"
        for statement in wanted:
            failed = _error((yield statement))
            if failed is not None:
                return failed
        return None

    def set_mirror(self, task: str, sql: str | None, hook: bool) -> Op[None]:
        """State what must happen beside changes of a task's recurring jobs; nothing, if there is neither.

        Without a hook the mark of one stays: a process may know the task and not have loaded its hook.
        """
        rows = yield Call("mirror_of", {"task": task})
        hook = hook or any(bool(row[1]) for row in rows)
        if sql is None and not hook:
            if rows:
                yield Call("delete_mirror", {"task": task})
        elif not rows or (rows[0][0], bool(rows[0][1])) != (sql, hook):
            yield Call("set_mirror", {"task": task, "sql": sql, "hook": hook})

    def forget_hook(self, task: str) -> Op[None]:
        """State that no Python hook must see changes of a task's recurring jobs any more."""
        for sql, _ in (yield Call("mirror_of", {"task": task})):
            yield Call("delete_mirror", {"task": task})
            if sql is not None:
                yield Call("set_mirror", {"task": task, "sql": str(sql), "hook": False})


def _error(rows: Rows) -> tuple[str | None, str] | None:
    if rows and rows[0] and rows[0][0] == FAILED:
        state = rows[0][1]
        return (None if state is None else str(state)), str(rows[0][2])
    return None


def missing_params(sql: str, given: Mapping[str, object]) -> str | None:
    """What a statement in the application's words names and is not given, in words; None if there is nothing."""
    for name in names_in(sql):
        if name not in given:
            known = ", ".join(f":{each}" for each in given) or "nothing"
            return f"the SQL names :{name}, and it is given {known}.{suggest(name, given)}"
    return None


MIRRORED = (*Change._fields, "next_run_us")
"""What a mirror statement may name."""


def mirror_params(change: Change, dialect: Dialect) -> dict[str, object]:
    """What a mirror statement may name. Times are `timestamptz` on PostgreSQL and ISO 8601 text in UTC on SQLite."""

    def time(us: int | None) -> datetime | str | None:
        if us is None:
            return None
        return from_us(us) if dialect is Dialect.POSTGRES else from_us(us).isoformat(sep=" ")

    return {
        "job_id": change.job_id,
        "tenant": change.tenant,
        "task": change.task,
        "key": change.key,
        "enabled": change.enabled,
        "next_run_at": time(change.next_run_at),
        "last_run_at": time(change.last_run_at),
        "next_run_us": change.next_run_at,
        "outcome": change.outcome,
        "error": change.error,
        "failures": change.failures,
    }
