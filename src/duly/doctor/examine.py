"""The check-up as a whole: every area in turn; and the repairs, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from duly.doctor import installation, jobs, postgres, recurring, retention, sqlite, workers
from duly.doctor.finding import Area, Finding, Fix, Severity
from duly.domain.audit import Actor, current_actor
from duly.domain.errors import DulyError
from duly.store import ops_audit, ops_doctor
from duly.store.call import Op
from duly.store.database import Hint, read_as_planned
from duly.store.postgres import PostgresDatabase
from duly.store.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from duly.app import Duly


def examine(app: Duly, *, deep: bool = False) -> list[Finding]:
    """Look at everything. Without a database that fits there is nothing more to look at."""
    found = list(_area("installation", lambda: installation.check(app)))
    if any(finding.severity is Severity.ERROR for finding in found):
        return found
    for name, check in _checks(app, deep=deep):
        found += _area(name, check)
    return found


def _checks(app: Duly, *, deep: bool) -> Sequence[tuple[str, Callable[[], Iterator[Finding]]]]:
    to_run = cache(lambda: read_as_planned(app.store.database, lambda: ops_doctor.to_run(app.store.dialect)))
    return (
        ("database", lambda: _database(app, deep=deep)),
        ("workers", lambda: workers.check(app, to_run)),
        ("jobs", lambda: jobs.check(app, to_run, deep=deep)),
        ("recurring", lambda: recurring.check(app)),
        ("retention", lambda: retention.check(app)),
    )


def _database(app: Duly, *, deep: bool) -> Iterator[Finding]:
    match app.store.database:
        case SqliteDatabase() as database:
            return sqlite.check(app, database, deep=deep)
        case PostgresDatabase() as database:
            return postgres.check(app, database)
        case other:
            raise TypeError(f"not a database that can be examined: {other!r}")


def _area(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Look at one area. If that cannot be finished, the others still can."""
    try:
        yield from check()
    except DulyError as error:
        what, _, step = str(error).partition(". ")
        yield Area(name).error("examined", f"could not be examined: {what}", step or "run it again with --debug")


def _mended(finding: Finding, fix: Fix, actor: Actor) -> Op[list[str]]:
    """Mend it, and write down who did, in one transaction."""
    done = yield from fix()
    if done:
        subject = f"{finding.area}: {finding.check}"
        yield from ops_audit.keep(actor, "mend", subject=subject, reason=finding.what, after={"done": "\n".join(done)})
    return done


def repair(app: Duly, finding: Finding) -> Finding:
    """Mend what was found, in one transaction, beside whoever else is at work."""
    if finding.fix is None:
        return finding
    fix, actor = finding.fix, current_actor()
    try:
        done = app.store.run(lambda: _mended(finding, fix, actor))
    except DulyError as error:
        return replace(finding, refused=str(error))
    app.store.poke(Hint("look"))
    return replace(finding, fixed=tuple(done) or ("it had come right by itself",))
