"""What a store operation is: a generator that yields calls and is sent their rows.

An operation knows nothing of connections. A driver runs it: our own SQLite or PostgreSQL connections, or the
caller's. So each operation is written once for sync and async, and a test can stop at every statement.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from duly.domain.errors import DatabaseError, DatabaseUnavailable

Value = str | int | float | bool | None | Sequence["str | int | float | None"]
Row = tuple[object, ...]
Rows = Sequence[Row]
R = TypeVar("R")


class Dialect(StrEnum):
    """Which SQL a database speaks."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class Call(NamedTuple):
    """One named statement and its parameters."""

    name: str
    params: Mapping[str, Value] = {}
    make: Callable[[Iterable[object]], Row] | None = None
    """What becomes of each row. A driver may leave that to who asked: it saves the rows in between, of many."""


class CopyIn(NamedTuple):
    """Rows for `COPY table (columns) FROM STDIN`, already in COPY's text format. PostgreSQL, own connections only.

    `blocks`: lines, many together, made as they are sent.
    """

    table: str
    columns: str
    blocks: Iterable[str]


class Foreign(NamedTuple):
    """A statement in the application's words, with `:name` parameters: a condition, or a mirror.

    With `caught` an error of the database comes back as a row (FAILED, SQLSTATE or None, message) instead of ending the
    operation; whoever asks so has set a savepoint. With `untyped` the parameters take the type of what they are
    compared with or assigned to, as literals do: also where a library would ask for the right Python type.
    """

    sql: str
    params: Mapping[str, object] = {}
    caught: bool = False
    untyped: bool = False


FAILED = "duly: the statement failed"
_WAITED = ("55P03", "40P01")
_PASSING = ("53", "57", "58", "25006")


def gave_up_waiting(rows: Rows) -> bool:
    """Whether a caught statement ended because somebody else holds what it wants. Any other error is raised."""
    if not rows or rows[0][0] != FAILED:
        return False
    if rows[0][1] in _WAITED:
        return True
    said, code = rows[0][2], str(rows[0][1])
    if code.startswith(_PASSING):  # cancelled, no memory, no room, a standby: the server's trouble, not the job's
        raise DatabaseUnavailable(f"PostgreSQL did not carry out an operation: {said} ({code})")
    raise DatabaseError(f"PostgreSQL refused an operation: {said} ({code})")


Op = Generator[Call | CopyIn | Foreign, Rows, R]


def rows_of(call: Call) -> Op[Rows]:
    """The operation that is one statement."""
    return (yield call)
