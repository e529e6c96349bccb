"""What the store needs of a database: run an operation that writes, run one that only reads, wait to be woken.

Two real ones: `sqlite.SqliteDatabase` and `postgres.PostgresDatabase`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from duly.domain.clock import Clock
from duly.store.call import Dialect, Op
from duly.store.migrate import SchemaVersion

R = TypeVar("R")


class Hint(NamedTuple):
    """What a wake-up says. Only ever a hint.

    `jobs` came into a lane; a limit of a queue has `room` again, or is `wanted`; something is `due` soon; a job should
    `cancel`;
    `workers` came or went; `gates` changed; `look` around; the file was `changed`, by whomever, for those who have
    nothing better to do. `sender` is the worker that says so, if it need not hear it.
    """

    kind: str
    queue: str = ""
    tenant: str = ""
    task: str = ""
    rank: int | None = None
    job_id: str = ""
    sender: str = ""


class Waker(Protocol):
    """Waits for hints. One thread waits; any thread may close."""

    polls_every: float
    """How often a sleeping worker must look by itself, in seconds: hints may be lost."""

    @property
    def address(self) -> str | None:
        """Where others can poke this worker, if by address."""
        ...

    def wait(self, timeout: float) -> list[Hint]:
        """Wait up to `timeout` seconds. Returns what came."""
        ...

    def close(self) -> None:
        """Stop waiting; a wait under way returns soon."""
        ...

    def dispose(self) -> None:
        """Let go of what it holds, once nobody waits any more."""
        ...


class Database(Protocol):
    """A database that store operations run on."""

    dialect: Dialect

    @property
    def copies(self) -> bool:
        """Whether many rows may be stored by COPY. As far as is known: an operation that is refused so is repeated."""
        ...

    @property
    def calls(self) -> int:
        """How many statements this process has sent to it."""
        ...

    @property
    def clock(self) -> Clock:
        """Where the time comes from."""
        ...

    def write(self, op: Callable[[], Op[R]], *, atomic: bool = True, again: bool = True) -> R:
        """Run an operation in a transaction of its own.

        `atomic=False`: it is one statement, its own transaction. `again`: it may be repeated after a lost connection.
        """
        ...

    def read(self, op: Callable[[], Op[R]]) -> R:
        """Run an operation that changes nothing."""
        ...

    def reserved(self, purpose: str, *, patience: float | None = None) -> Database:
        """The same database by a connection that nobody else can take.

        `patience`: after how many seconds it is given up where a network lets nothing through.
        """
        ...

    def release(self) -> None:
        """Give a reserved connection up; nothing on a database that was not reserved."""
        ...

    def unbroken_us(self, tolerated_us: int = 0) -> int:
        """How long this side has been in touch with the database, in microseconds.

        `tolerated_us`: a connection that was lost and replaced within this time is no break.
        """
        ...

    def waker(self, worker_id: str) -> Waker:
        """Something to wait for hints on."""
        ...

    def notice(self, hint: Hint) -> tuple[str | None, str]:
        """The channel and text by which a statement can give the hint by itself; no channel where it is not wanted."""
        ...

    def poke(self, hint: Hint, addresses: Sequence[str] | None = None) -> None:
        """Give sleeping workers a hint, after a commit; at these addresses, if they are known already. Never fails."""
        ...

    def schema_version(self) -> SchemaVersion | None:
        """The version of the tables as they are, whether or not it fits; None if there are none. Changes nothing."""
        ...

    def migrate(self) -> list[int]:
        """Bring the tables up to this version. Returns the versions applied."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


def read_as_planned(database: Database, op: Callable[[], Op[R]]) -> R:
    """Run an operation that changes nothing and says how PostgreSQL shall plan it: that holds for one transaction."""
    return database.write(op) if database.dialect is Dialect.POSTGRES else database.read(op)
