"""What happens on a caller's connection, step by step and free of any library: look where it leads, open a savepoint,
run the operation's statements, close the savepoint or roll back to it. A generator, as the operations are, so that
`foreign_sync` and `foreign_async` add only how their libraries run one statement.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from duly.domain.errors import InvalidOption, SchemaMissing
from duly.store import migrate
from duly.store.call import FAILED, Call, Dialect, Foreign, Op, Row, Rows, Value
from duly.store.database import Database
from duly.store.postgres import PostgresDatabase
from duly.store.sqlite import SqliteDatabase
from duly.store.statements import Compiled, literal, rewrite

R = TypeVar("R")
Params = Mapping[str, object] | tuple[object, ...]
_TYPED = re.compile(r"(?<![:\w])(:[a-z_]\w*)::(uuid|json)\b(\[\])?")
_CLOCK = re.compile(r"(?<![:\w]):(now|lease_now)\b(?!::)")
_SCHEMA_STATES = {"42P01", "3F000", "42703"}  # no such table, schema, column
_SCHEMA_WORDS = ("no such table: duly_", "no such column", "has no column named")


class Step(NamedTuple):
    """One statement in the words of the caller's library. No parameters means that none are looked for in the text."""

    sql: str
    params: Params | None = None
    whole: bool = False
    """Whether it must not be cut off in the middle: it opens or ends a transaction or a savepoint."""


Steps = Generator[Step, Rows, R]


class Around(Enum):
    """What is around the operation on the caller's connection."""

    TRANSACTION = auto()
    """A transaction is open, or the library opens one by itself before the first statement."""
    NONE_YET = auto()
    """The library opens one, but only before a statement that it sees to be a change: we open it in its place."""
    AUTOCOMMIT = auto()
    """None is open, and whatever returns is meant to be committed."""


class Library(Protocol):
    """What the steps must know of the caller's connection."""

    dialect: Dialect
    style: str

    def around(self) -> Around:
        """What is around the next statement."""
        ...


class TablesNotMade(SchemaMissing):
    """The SQLite file has no tables yet, and the caller has nothing open that would keep us from making them."""


def steps_of(library: Library, op: Callable[[], Op[R]], database: Database, *, bare: bool = False) -> Steps[R]:
    """Run an operation on the caller's connection, all or nothing.

    `bare`: it writes by one statement at most, so on PostgreSQL, where an error ends the transaction, it needs no
    savepoint for that.
    """
    yield from _check_place(library, database)
    around = library.around()
    words = _Words(library.style, database)
    try:
        if bare and around is Around.TRANSACTION and words.dialect is Dialect.POSTGRES:
            return (yield from _statements(words, op))
        return (yield from _all_or_nothing(around, words, op))
    except Exception as error:
        if _is_about_schema(error):
            yield from _explain(error, around, words, database)
        raise


def opening(library: Library, database: Database) -> Steps[Around]:
    """Have a transaction open on the caller's connection. Returns what was around before: what we opened, we end."""
    yield from _check_place(library, database)
    around = library.around()
    if around is not Around.TRANSACTION:
        yield from _begin(around, _bracket(around, library.dialect)[0])
    return around


def ending(sql: str) -> Steps[None]:
    """End a transaction that we opened: COMMIT or ROLLBACK."""
    yield Step(sql, whole=True)


def _check_place(library: Library, database: Database) -> Steps[None]:
    """Refuse a connection to another database, as far as can be told."""
    if library.dialect is not database.dialect:
        raise InvalidOption(
            f"connection= leads to {_NAMES[library.dialect]}, but duly uses {_where(database)}. "
            "Pass a connection to that database, or enqueue without connection="
        )
    if isinstance(database, SqliteDatabase):
        rows = yield Step("PRAGMA database_list")
        check_file(next(str(row[2] or "") for row in rows if row[1] == "main"), database.path)


_NAMES = {Dialect.SQLITE: "SQLite", Dialect.POSTGRES: "PostgreSQL"}


def check_file(found: str, ours: Path) -> None:
    """Refuse a connection to another SQLite file than duly's."""
    try:
        same = bool(found) and os.path.samefile(found, ours)
    except OSError:
        same = os.path.realpath(found) == os.path.realpath(ours)
    if not same:
        raise InvalidOption(
            f"connection= leads to {found or 'a database in memory'}, but duly uses {os.path.realpath(ours)}. "
            "Pass a connection to that file, or enqueue without connection="
        )


def plain(rows: Iterable[Iterable[object]]) -> list[Row]:
    """Make what any library returns into tuples of what the operations expect."""
    return [tuple(_plain(value) for value in row) for row in rows]


def _plain(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    return value.decode() if isinstance(value, bytes) else value


# -- all or nothing -------------------------------------------------------------------------------------------


def _all_or_nothing(around: Around, words: _Words, op: Callable[[], Op[R]]) -> Steps[R]:
    begin, keep, undo = _bracket(around, words.dialect)
    yield from _begin(around, begin)
    try:
        if around is Around.TRANSACTION and words.dialect is Dialect.SQLITE:
            yield words.step(Call("lock_to_write"))
        result = yield from _statements(words, op)
    except BaseException:
        with suppress(Exception):  # the connection is gone: the error that is on its way says so
            for sql in undo:
                yield Step(sql, whole=True)
        raise
    for sql in keep:
        yield Step(sql, whole=True)
    return result


def _begin(around: Around, sql: str) -> Steps[None]:
    """Open a transaction or a savepoint. Who is cancelled meanwhile may have opened it all the same.

    A savepoint that is left behind in the caller's transaction harms nobody.
    """
    try:
        yield Step(sql, whole=True)
    except BaseException:
        if around is not Around.TRANSACTION:
            with suppress(Exception):  # there is none
                yield Step("ROLLBACK", whole=True)
        raise


def _bracket(around: Around, dialect: Dialect) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """How to begin, what to do to keep what was written, and what to do to take it back."""
    begin = "BEGIN IMMEDIATE" if dialect is Dialect.SQLITE else "BEGIN"
    match around:
        case Around.TRANSACTION:
            release = "RELEASE SAVEPOINT duly_op"
            return "SAVEPOINT duly_op", (release,), ("ROLLBACK TO SAVEPOINT duly_op", release)
        case Around.NONE_YET:
            return begin, (), ("ROLLBACK",)
        case Around.AUTOCOMMIT:
            return begin, ("COMMIT",), ("ROLLBACK",)


def _statements(words: _Words, op: Callable[[], Op[R]]) -> Steps[R]:
    calls = op()
    try:
        call = next(calls)
        while True:
            if isinstance(call, Foreign):
                call = calls.send((yield from _foreign(words, call)))
                continue
            assert isinstance(call, Call), "COPY is for our own connections"
            call = calls.send((yield words.step(call)))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        calls.close()


def _foreign(words: _Words, call: Foreign) -> Steps[Rows]:
    """A statement in the application's words."""
    try:
        return (yield words.foreign(call))
    except Exception as error:
        if not call.caught:
            raise
        cause = getattr(error, "orig", None) or error
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        return [(FAILED, state, str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__)]


# -- words ----------------------------------------------------------------------------------------------------


class _Typed(Compiled):
    """For asyncpg, which asks the server for each parameter's type and then converts by it.

    Ids and JSON are sent as text whatever codecs the caller has set for those types; the clock's value has a type.
    """

    def compile(self, sql: str) -> tuple[str, tuple[str, ...]]:
        return super().compile(_CLOCK.sub(r":\1::bigint", _TYPED.sub(r"\1::text\3::\2\3", sql)))


@lru_cache(maxsize=32)
def _compiled(dialect: Dialect, style: str, schema: str, server_clock: bool) -> Compiled:
    kind = _Typed if style == "dollar" else Compiled
    return kind(dialect, style, schema, server_clock=server_clock)


class _Words:
    """Puts calls into the words of one library for one database."""

    def __init__(self, style: str, database: Database) -> None:
        self.dialect = database.dialect
        self._style = style
        clock = database.clock  # one instant for the whole operation
        self._instants = {"now": clock.now_us(), "lease_now": clock.lease_us()}
        on_server = isinstance(database, PostgresDatabase)
        schema = database.schema if isinstance(database, PostgresDatabase) else "duly"
        self._compiled = _compiled(database.dialect, style, schema, on_server and not database.clock.manual)

    def step(self, call: Call) -> Step:
        """Put one call into words."""
        sql, order = self._compiled.get(call.name)
        if self._style == "pyformat":
            return Step(sql, {name: self._value(name, call) for name in order})
        return Step(sql, tuple(self._value(name, call) for name in order))

    def foreign(self, call: Foreign) -> Step:
        """Put a statement of the application's into words."""
        if call.untyped and self._style == "dollar":
            return Step(rewrite(call.sql, param=lambda name: literal(call.params[name]), table="duly.", casts=True))
        sql, order = self._compiled.foreign(call.sql)
        if self._style == "pyformat":
            return Step(sql, {name: call.params[name] for name in order})
        return Step(sql, tuple(call.params[name] for name in order))

    def _value(self, name: str, call: Call) -> Value:
        return self._instants[name] if name in self._instants else call.params[name]


# -- errors ---------------------------------------------------------------------------------------------------


def _is_about_schema(error: BaseException) -> bool:
    cause = getattr(error, "orig", None) or error  # SQLAlchemy wraps
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return state in _SCHEMA_STATES or (state is None and any(words in str(cause) for words in _SCHEMA_WORDS))


def _explain(error: Exception, around: Around, words: _Words, database: Database) -> Steps[None]:
    """Raise what is wrong with the tables, if it is they that are wrong."""
    version: migrate.SchemaVersion | None = None
    try:
        version = yield from _all_or_nothing(around, words, lambda: _version(database.dialect))
    except Exception as another:
        if not _is_about_schema(another):
            return
    if version is None:
        raise _missing(around, database) from error
    migrate.check_version(version, database.dialect, _where(database))


def _version(dialect: Dialect) -> Op[migrate.SchemaVersion | None]:
    rows = yield Call("schema_version")
    if rows[0][0] is None:
        return None
    version = int(str(rows[0][0]))
    if version <= migrate.newest(dialect):
        return migrate.SchemaVersion(version)
    rows = yield Call("compatible_from")
    return migrate.SchemaVersion(version, int(str(rows[0][0])))


def _missing(around: Around, database: Database) -> SchemaMissing:
    where = _where(database)
    if isinstance(database, PostgresDatabase):
        schema = "" if database.schema == "duly" else f" --schema {database.schema}"
        return SchemaMissing(
            f"the database of connection= has no tables of duly in schema {database.schema!r}. "
            f"Pass a connection to {where}; if this is one, run: duly migrate --url {where}{schema}"
        )
    if around is not Around.TRANSACTION:
        return TablesNotMade(f"{where} has no tables of duly yet. Run: duly migrate --url {where}")
    return SchemaMissing(
        f"{where} has no tables of duly yet, and your open transaction keeps duly from making them. "
        f"Run: duly migrate --url {where}"
    )


def _where(database: Database) -> str:
    if isinstance(database, PostgresDatabase):
        return database.safe_url
    return f"sqlite:///{database.path}" if isinstance(database, SqliteDatabase) else database.dialect.value
