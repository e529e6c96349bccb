"""Recognises the caller's connection by the names of its classes, so that no library is imported for it."""

from __future__ import annotations

from enum import StrEnum

from duly.domain.errors import InvalidOption


class Kind(StrEnum):
    """A kind of connection that operations run on."""

    SQLITE3 = "sqlite3.Connection"
    PSYCOPG = "psycopg.Connection"
    SQLALCHEMY = "sqlalchemy.engine.base.Connection"
    SQLALCHEMY_SESSION = "sqlalchemy.orm.session.Session"
    SQLALCHEMY_SCOPED = "sqlalchemy.orm.scoping.scoped_session"
    AIOSQLITE = "aiosqlite.core.Connection"
    PSYCOPG_ASYNC = "psycopg.AsyncConnection"
    ASYNCPG = "asyncpg.connection.Connection"
    ASYNCPG_POOLED = "asyncpg.pool.PoolConnectionProxy"
    SQLALCHEMY_ASYNC = "sqlalchemy.ext.asyncio.engine.AsyncConnection"
    SQLALCHEMY_ASYNC_SESSION = "sqlalchemy.ext.asyncio.session.AsyncSession"
    SQLALCHEMY_ASYNC_SCOPED = "sqlalchemy.ext.asyncio.scoping.async_scoped_session"


_NAMES = frozenset(kind.value for kind in Kind)

_ASYNC = {
    Kind.AIOSQLITE,
    Kind.PSYCOPG_ASYNC,
    Kind.ASYNCPG,
    Kind.ASYNCPG_POOLED,
    Kind.SQLALCHEMY_ASYNC,
    Kind.SQLALCHEMY_ASYNC_SESSION,
    Kind.SQLALCHEMY_ASYNC_SCOPED,
}

_INSTEAD = {
    "builtins.str": "Open a connection to that database and pass it",
    "sqlite3.Cursor": "Pass its connection: cursor.connection",
    "psycopg.Cursor": "Pass its connection: cursor.connection",
    "psycopg.AsyncCursor": "Pass its connection: cursor.connection",
    "psycopg2.extensions.connection": "Use psycopg 3, or psycopg2 through SQLAlchemy",
    "psycopg_pool.pool.ConnectionPool": "Take one from the pool: with pool.connection() as connection",
    "psycopg_pool.pool_async.AsyncConnectionPool": "Take one from the pool: async with pool.connection() as connection",
    "asyncpg.pool.Pool": "Take one from the pool: async with pool.acquire() as connection",
    "asyncpg.pool.PoolAcquireContext": "Await it first: async with pool.acquire() as connection",
    "sqlalchemy.engine.base.Engine": "Take one from the engine: with engine.begin() as connection",
    "sqlalchemy.orm.session.sessionmaker": "Make a session: with Session.begin() as session",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": "Take one from the engine: async with engine.begin() as connection",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": "Make a session: async with Session.begin() as session",
}


def kind_of(connection: object) -> Kind:
    """Say which kind of connection this is; refuse anything else and say what to pass instead."""
    names = [f"{each.__module__}.{each.__qualname__}" for each in type(connection).__mro__]
    for name in names:
        if name in _NAMES:
            return Kind(name)
    instead = next((_INSTEAD[name] for name in names if name in _INSTEAD), None)
    raise InvalidOption(
        f"connection= must be an open connection, not {name_of(connection)}. "
        + (instead or "Pass one of sqlite3, aiosqlite, psycopg, asyncpg or SQLAlchemy (Connection or Session)")
    )


def is_async(connection: object) -> bool:
    """Whether statements on this connection are awaited. Refuses what is no connection."""
    return kind_of(connection) in _ASYNC


def name_of(connection: object) -> str:
    """Name the type of a value as people know it: `sqlalchemy Engine`, `str`."""
    kind = type(connection)
    library = kind.__module__.partition(".")[0]
    return kind.__qualname__ if library == "builtins" else f"{library} {kind.__qualname__}"


def refuse_closed(connection: object) -> InvalidOption:
    """Say that a connection is not open."""
    return InvalidOption(f"connection= is a closed {name_of(connection)}. Pass one that is open")
