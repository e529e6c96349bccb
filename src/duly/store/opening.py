"""Finds the database that an address names."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from duly.domain.clock import Clock
from duly.domain.errors import ConfigurationError
from duly.domain.names import suggest
from duly.store.database import Database

_PASSWORD = r"(?<=:)[^:/@]+(?=@)"


def open_database(
    url: str,
    clock: Clock,
    *,
    schema: str = "duly",
    synchronous: str = "full",
    allow_network_disk: bool = False,
    notify: bool = True,
) -> Database:
    """Choose the database by its address. Nothing is opened yet."""
    scheme, separator, rest = url.partition("://")
    match scheme.lower() if separator else "":
        case "sqlite" | "libsql":
            from duly.store.sqlite import SqliteDatabase

            path = Path(_sqlite_path(url, rest)).absolute()  # a later chdir must not make it another file
            connect = None
            if scheme.lower() == "libsql":
                from duly.store import libsql

                connect = libsql.connect
            return SqliteDatabase(
                path, clock, synchronous=synchronous, allow_network_disk=allow_network_disk, connect=connect
            )
        case "postgresql" | "postgres":
            from duly.store.postgres import PostgresDatabase

            return PostgresDatabase(url, clock, schema=schema, notify=notify)
        case _:
            hint = suggest(scheme.lower(), ["sqlite", "libsql", "postgresql"])
            raise ConfigurationError(
                f"database address {re.sub(_PASSWORD, '***', url)!r} is not one duly knows.{hint} "
                "Use sqlite:///file.db, libsql:///file.db or postgresql://user@host/database"
            )


def _sqlite_path(url: str, rest: str) -> str:
    """The file of an SQLite address: three slashes for a relative path, four for an absolute one."""
    path = unquote(urlsplit(f"//{rest}").path if not rest.startswith("/") else rest)
    path = path.removeprefix("/")
    if rest.split("/", 1)[0] or not path or path == ":memory:":
        raise ConfigurationError(
            f"database address {url!r} names no file. Use sqlite:///relative.db or sqlite:////absolute/path.db "
            "(a database in memory could not be shared with a worker)"
        )
    return path
