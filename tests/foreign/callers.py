"""Callers of every library, with one face: begin, write something of one's own, run an operation, commit or roll back.

An asynchronous library runs on an event loop of its caller's own, so each test is written once.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

import aiosqlite
import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

from duly.store.call import Op
from duly.store.database import Database
from duly.store.foreign import arun_on, is_async, run_on

R = TypeVar("R")


class Caller(ABC):
    """An application with a connection of its own."""

    connection: Any
    autocommit = False
    """Whether an operation outside of a transaction is committed at once."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, op: Callable[[], Op[R]], database: Database) -> R:
        """Run an operation of duly."""
        assert not is_async(self.connection)
        return run_on(self.connection, op, database=database)

    @abstractmethod
    def begin(self) -> None: ...
    @abstractmethod
    def execute(self, sql: str) -> None: ...
    @abstractmethod
    def commit(self) -> None: ...
    @abstractmethod
    def rollback(self) -> None: ...
    @abstractmethod
    def close(self) -> None: ...


class BySql(Caller):
    """A library whose transactions are opened and closed by statements."""

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def close(self) -> None:
        self.connection.close()


class Implicit(BySql):
    """A library that opens a transaction by itself."""

    def begin(self) -> None:
        pass

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


class Asynchronous(Caller):
    """A library whose calls are awaited."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._runner = asyncio.Runner()
        self.wait(self.open())

    def wait(self, awaited: Coroutine[object, object, R]) -> R:
        return self._runner.run(awaited)

    def run(self, op: Callable[[], Op[R]], database: Database) -> R:
        assert is_async(self.connection)
        return self.wait(arun_on(self.connection, op, database=database))

    @abstractmethod
    async def open(self) -> None: ...

    async def shut(self) -> None:
        await self.connection.close()

    def begin(self) -> None:
        pass

    def execute(self, sql: str) -> None:
        self.wait(self.connection.execute(sql))

    def commit(self) -> None:
        self.wait(self.connection.commit())

    def rollback(self) -> None:
        self.wait(self.connection.rollback())

    def close(self) -> None:
        self.wait(self.shut())
        self._runner.close()


def sqlite_path(url: str) -> str:
    return url.removeprefix("sqlite:///")


def by(driver: str, url: str) -> str:
    """The address as SQLAlchemy wants it, by one driver."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


# -- sqlite3 and psycopg --------------------------------------------------------------------------------------


class Sqlite3(Implicit):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection = sqlite3.connect(sqlite_path(url))
        self.connection.row_factory = sqlite3.Row


class Sqlite3Autocommit(BySql):
    autocommit = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection = sqlite3.connect(sqlite_path(url), isolation_level=None)


class Psycopg(Implicit):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection = psycopg.connect(url, row_factory=dict_row)


class PsycopgAutocommit(BySql):
    autocommit = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor)


class PsycopgAsync(Asynchronous):
    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.url, row_factory=dict_row)


class PsycopgAsyncAutocommit(Asynchronous):
    autocommit = True

    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)

    def begin(self) -> None:
        self.execute("BEGIN")


# -- asyncpg and aiosqlite ------------------------------------------------------------------------------------


class Asyncpg(Asynchronous):
    """Inside `connection.transaction()`, as asyncpg's documentation shows."""

    autocommit = True

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        self.transaction: Any = None

    def begin(self) -> None:
        self.transaction = self.connection.transaction()
        self.wait(self.transaction.start())

    def commit(self) -> None:
        self.wait(self.transaction.commit())

    def rollback(self) -> None:
        self.wait(self.transaction.rollback())


class AsyncpgPooled(Asyncpg):
    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.connection = await self.pool.acquire()

    async def shut(self) -> None:
        await self.pool.release(self.connection)
        await self.pool.close()


class AsyncpgBySql(Asyncpg):
    """With transactions begun by hand, which asyncpg's own do not go along with."""

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")


class Aiosqlite(Asynchronous):
    async def open(self) -> None:
        self.connection = await aiosqlite.connect(sqlite_path(self.url))
        self.connection.row_factory = aiosqlite.Row


# -- SQLAlchemy -----------------------------------------------------------------------------------------------


class SqlAlchemy(Implicit):
    driver = ""
    options: ClassVar[dict[str, object]] = {}

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.engine = sqlalchemy.create_engine(by(self.driver, url), **self.options)
        self.connection = self.engine.connect()

    def execute(self, sql: str) -> None:
        self.connection.execute(sqlalchemy.text(sql))

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()


class SqlAlchemyAutocommit(SqlAlchemy):
    autocommit = True
    options: ClassVar[dict[str, object]] = {"isolation_level": "AUTOCOMMIT"}

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")


class SqlAlchemySession(SqlAlchemy):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection.close()
        self.connection = Session(self.engine)


class SqlAlchemyAsync(Asynchronous):
    driver = ""
    options: ClassVar[dict[str, object]] = {}

    async def open(self) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine  # needs greenlet

        self.engine = create_async_engine(by(self.driver, self.url), **self.options)
        self.connection = await self.engine.connect()

    async def shut(self) -> None:
        await self.connection.close()
        await self.engine.dispose()

    def execute(self, sql: str) -> None:
        self.wait(self.connection.execute(sqlalchemy.text(sql)))


class SqlAlchemyAsyncAutocommit(SqlAlchemyAsync):
    autocommit = True
    options: ClassVar[dict[str, object]] = {"isolation_level": "AUTOCOMMIT"}

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")


class SqlAlchemyAsyncSession(SqlAlchemyAsync):
    async def open(self) -> None:
        from sqlalchemy.ext.asyncio import AsyncSession

        await super().open()
        await self.connection.close()
        self.connection = AsyncSession(self.engine)


def through(driver: str, caller: type[SqlAlchemy] | type[SqlAlchemyAsync]) -> type[Caller]:
    """A caller that uses SQLAlchemy by this driver."""
    return type(f"{caller.__name__}_{driver}", (caller,), {"driver": driver})


ON_SQLITE: dict[str, type[Caller]] = {
    "sqlite3": Sqlite3,
    "sqlite3-autocommit": Sqlite3Autocommit,
    "aiosqlite": Aiosqlite,
    "sqlalchemy-pysqlite": through("pysqlite", SqlAlchemy),
    "sqlalchemy-pysqlite-autocommit": through("pysqlite", SqlAlchemyAutocommit),
    "sqlalchemy-pysqlite-session": through("pysqlite", SqlAlchemySession),
    "sqlalchemy-aiosqlite": through("aiosqlite", SqlAlchemyAsync),
    "sqlalchemy-aiosqlite-autocommit": through("aiosqlite", SqlAlchemyAsyncAutocommit),
    "sqlalchemy-aiosqlite-session": through("aiosqlite", SqlAlchemyAsyncSession),
}

ON_POSTGRES: dict[str, type[Caller]] = {
    "psycopg": Psycopg,
    "psycopg-autocommit": PsycopgAutocommit,
    "psycopg-async": PsycopgAsync,
    "psycopg-async-autocommit": PsycopgAsyncAutocommit,
    "asyncpg": Asyncpg,
    "asyncpg-pooled": AsyncpgPooled,
    "asyncpg-by-sql": AsyncpgBySql,
    "sqlalchemy-psycopg": through("psycopg", SqlAlchemy),
    "sqlalchemy-psycopg-autocommit": through("psycopg", SqlAlchemyAutocommit),
    "sqlalchemy-psycopg-session": through("psycopg", SqlAlchemySession),
    "sqlalchemy-psycopg2": through("psycopg2", SqlAlchemy),
    "sqlalchemy-psycopg2-autocommit": through("psycopg2", SqlAlchemyAutocommit),
    "sqlalchemy-psycopg-async": through("psycopg", SqlAlchemyAsync),
    "sqlalchemy-psycopg-async-autocommit": through("psycopg", SqlAlchemyAsyncAutocommit),
    "sqlalchemy-asyncpg": through("asyncpg", SqlAlchemyAsync),
    "sqlalchemy-asyncpg-autocommit": through("asyncpg", SqlAlchemyAsyncAutocommit),
    "sqlalchemy-asyncpg-session": through("asyncpg", SqlAlchemyAsyncSession),
}


def missing_for(name: str, caller: type[Caller]) -> str | None:
    """What this caller needs that is not installed."""
    needed = "psycopg2" if "psycopg2" in name else "greenlet" if issubclass(caller, SqlAlchemyAsync) else "sqlite3"
    try:
        __import__(needed)
    except ImportError:
        return needed
    return None
