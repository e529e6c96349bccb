"""A place of its own beside the tables in use, to measure in: a schema in PostgreSQL, a folder beside an SQLite file.

Whoever works there cannot reach a job of the tables in use, and it goes away whole. Decision 0026.
"""

from __future__ import annotations

import secrets
import shutil
import string
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from duly.domain.errors import DatabaseError, DatabaseUnavailable
from duly.store.database import Database
from duly.store.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from duly.store.postgres import PostgresDatabase

PREFIX = "duly_bench_"
FILE = "b.db"  # short: workers are woken by a socket beside it, whose path may have only a hundred characters
COMMENT = "Made by duly bench, which drops it at its end. If none is running, drop it"


class Scratch(Protocol):
    """The place: where it is, and how it comes and goes."""

    schema: str | None

    @property
    def url(self) -> str:
        """Its address; there is none before it is made."""
        ...

    @property
    def words(self) -> str:
        """What will be made, for people."""
        ...

    @property
    def by_hand(self) -> str:
        """How a person removes it."""
        ...

    def make(self) -> None:
        """Make it. It must not be there yet."""
        ...

    def remove(self) -> None:
        """Remove it with all that is in it; nothing happens where it is not."""
        ...

    def left_behind(self) -> list[str]:
        """How to remove what others have made and not removed: they were killed, or are at it."""
        ...


def scratch_beside(database: Database, url: str) -> Scratch:
    """Choose a place beside a database. Nothing is made yet."""
    if isinstance(database, SqliteDatabase):
        return Folder(database.path, url)
    from duly.store.postgres import PostgresDatabase

    assert isinstance(database, PostgresDatabase)
    return Schema(database)


class Schema:
    """A schema in the same PostgreSQL database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.url = database.url
        self.schema: str | None = PREFIX + "".join(secrets.choice(string.ascii_lowercase) for _ in range(8))

    @property
    def words(self) -> str:
        return f"a schema of its own, {self.schema}"

    @property
    def by_hand(self) -> str:
        return f"DROP SCHEMA {self.schema} CASCADE"

    def make(self) -> None:
        import psycopg

        with closing(self._database.connect()) as connection:
            try:
                connection.execute(f"CREATE SCHEMA {self.schema}".encode())
            except psycopg.errors.InsufficientPrivilege as error:
                name = connection.info.dbname
                raise DatabaseError(
                    f"{connection.info.user} may not make a schema in {name}. Have an owner say "
                    f"GRANT CREATE ON DATABASE {name} TO {connection.info.user}, or measure another database"
                ) from error
            connection.execute(f"COMMENT ON SCHEMA {self.schema} IS '{COMMENT}'".encode())

    def remove(self) -> None:
        assert self.schema is not None
        assert self.schema.startswith(PREFIX)
        with closing(self._database.connect()) as connection:
            connection.execute("SET client_min_messages = warning")  # not a notice for each table that goes with it
            connection.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE".encode())

    def left_behind(self) -> list[str]:
        with closing(self._database.connect()) as connection:
            rows = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s) AND nspname <> %s ORDER BY 1",
                (PREFIX, self.schema),
            ).fetchall()
        return [f"DROP SCHEMA {name} CASCADE" for (name,) in rows]


class Folder:
    """A folder beside an SQLite file, so on the same disk, with a file of its own in it."""

    schema: str | None = None

    def __init__(self, path: Path, url: str) -> None:
        self._beside = path.parent
        self._scheme = url.partition("://")[0]
        self._folder: Path | None = None

    @property
    def url(self) -> str:
        """The address of the file; there is none before it is made."""
        assert self._folder is not None
        return f"{self._scheme}:///{quote(str(self._folder / FILE))}"

    @property
    def words(self) -> str:
        return f"a file of its own in a new folder in {self._beside}"

    @property
    def by_hand(self) -> str:
        return f"rm -r {self._folder}"

    def make(self) -> None:
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._beside))
        except OSError as error:
            raise DatabaseUnavailable(f"no folder can be made in {self._beside}: {error.strerror}") from error

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def left_behind(self) -> list[str]:
        return [f"rm -r {folder}" for folder in sorted(self._beside.glob(f"{PREFIX}*")) if folder != self._folder]
