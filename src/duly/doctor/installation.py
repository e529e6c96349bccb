"""Whether the database can be reached, its tables fit this code, and the clocks agree."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

from duly.__about__ import __version__
from duly.doctor.finding import Area, Finding
from duly.doctor.words import span
from duly.domain.errors import DatabaseError
from duly.store import migrate, ops_doctor
from duly.store.call import Dialect
from duly.store.postgres import PostgresDatabase
from duly.store.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from duly.app import Duly

AREA = Area("installation")
MOST_SKEW_US = 1_000_000


def check(app: Duly) -> Iterator[Finding]:
    """Look at what everything else needs."""
    yield AREA.ok(
        "versions", f"duly {__version__}, Python {platform.python_version()}", duly=__version__, python=_python()
    )
    database = app.store.database
    try:
        version = database.schema_version()
    except DatabaseError as error:
        what, _, step = str(error).rpartition(". ")
        yield AREA.error("connection", what or step, step if what else "check the address and the server")
        return
    yield AREA.ok("connection", "the database answers", dialect=str(database.dialect))
    where, schema = where_is(app), app.settings.schema
    yield fits(version, database.dialect, migrate.command_for(where, schema))
    if migrate.fits(version, database.dialect) and isinstance(database, PostgresDatabase):
        database.read(ops_doctor.server)  # so that the next one takes a round trip and no more
        before = database.clock.now_us()
        server = database.read(ops_doctor.server)
        if not database.clock.manual:
            yield clocks(server.clock_us, before, database.clock.now_us())


def where_is(app: Duly) -> str:
    """The database as people may see it."""
    database = app.store.database
    if isinstance(database, PostgresDatabase):
        return database.safe_url
    return f"sqlite:///{database.path}" if isinstance(database, SqliteDatabase) else app.settings.url


def fits(present: migrate.SchemaVersion | None, dialect: Dialect, command: str) -> Finding:
    """Whether the tables are those that this code knows, or newer ones that it may work on."""
    found, wanted = None if present is None else present.version, migrate.newest(dialect)
    if found is None:
        return AREA.error("schema", "there are no tables of duly yet", f"run {command}", found=None, wanted=wanted)
    if found < wanted:
        return AREA.error(
            "schema",
            f"the tables are of version {found}, and this duly needs {wanted}",
            f"run {command}",
            found=found,
            wanted=wanted,
        )
    if found == wanted:
        return AREA.ok("schema", f"the tables are up to date (version {found})", found=found, wanted=wanted)
    needs = None if present is None else present.compatible_from
    if migrate.fits(present, dialect):
        return AREA.ok(
            "schema",
            f"the tables are of version {found}; this duly knows {wanted} and may work on them, since they take "
            f"{needs} or newer",
            found=found,
            wanted=wanted,
            compatible_from=needs,
        )
    return AREA.error(
        "schema",
        f"the tables are of version {found}, and this duly knows {wanted}",
        "upgrade duly on this machine: pip install --upgrade duly",
        found=found,
        wanted=wanted,
        compatible_from=needs,
    )


def clocks(server_us: int, before_us: int, after_us: int) -> Finding:
    """Whether this host and the database agree about the time, as closely as the round trip lets one see."""
    skew, doubt = server_us - (before_us + after_us) // 2, (after_us - before_us) // 2
    evidence = {"skew_seconds": round(skew / 1e6, 3), "precision_seconds": round(doubt / 1e6, 3)}
    if abs(skew) - doubt > MOST_SKEW_US:
        side = "ahead of" if skew > 0 else "behind"
        return AREA.warning(
            "clock",
            f"the database's clock is {span(abs(skew))} {side} this host's; jobs go by the database's",
            "synchronise the clocks of both machines (NTP, chrony)",
            **evidence,
        )
    return AREA.ok("clock", f"the clocks agree to {span(max(1_000, abs(skew) + doubt))}", **evidence)


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"
