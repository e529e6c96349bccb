"""A database of a scenario's own, and where its files are: an SQLite file, or a PostgreSQL server to stop and start."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaos.arena import Arena
from tests.databases import Kind, start_postgres
from tests.postgres import PostgresServer, short_temporary_directory


class Place:
    """One database, fresh."""

    def __init__(self, database: str, directory: Path, server: PostgresServer | None) -> None:
        self.database = database
        self.directory = directory
        self.server = server

    @property
    def url(self) -> str:
        """Where it is."""
        return f"sqlite:///{self.directory / 'duly.db'}" if self.server is None else self.server.url()

    @property
    def log(self) -> Path | None:
        """Where the server complains."""
        return None if self.server is None else self.server.log

    @contextmanager
    def arena(self, *, seed: int, size: tuple[int, int], **options: Any) -> Iterator[Arena]:
        """Workers and jobs on this database; all gone at the end."""
        jobs, faults = size
        made = Arena(self.url, self.directory, seed=seed, jobs=jobs, faults=faults, **options)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def place(database: str) -> Iterator[Place]:
    """A fresh database; its files are gone at the end."""
    directory = Path(tempfile.mkdtemp(prefix="duly-chaos-", dir=short_temporary_directory()))
    server = None
    try:
        server = start_postgres(Kind.PG18) if database == "postgres" else None
        yield Place(database, directory, server)
    finally:
        if server is not None:
            server.remove()
        shutil.rmtree(directory, ignore_errors=True)
