"""What an operation of the matrix is given: a store, its clock, and what was arranged for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duly.domain.ids import uuid7
from duly.domain.records import Claimed
from duly.store.store import Store
from duly.testing import TestClock
from tests.crash_matrix.faulty_postgres import FaultyPostgres
from tests.crash_matrix.faulty_sqlite import FaultySqlite
from tests.store.factory import Factory
from tests.store.raw import Raw

SHARD = 7
"""The shard in which counts are kept: otherwise by chance."""
Faulty = FaultyPostgres | FaultySqlite


class RunningClock(TestClock):
    """Stands still, and the store believes that it runs: on PostgreSQL the server's clock is used."""

    manual = False


@dataclass
class World:
    """One store on one database."""

    store: Store
    clock: TestClock
    kept: dict[str, Any]
    """What was arranged, for the act: ids, claimed jobs. Can be sent to another process."""
    raw: Raw | None = None

    @property
    def make(self) -> Factory:
        assert self.raw is not None
        return Factory(self.store, self.clock, self.raw)

    @property
    def job(self) -> Claimed:
        job: Claimed = self.kept["job"]
        return job

    @property
    def id(self) -> str:
        return str(self.kept["id"])


def open_faulty(url: str, clock: TestClock) -> Faulty:
    if url.startswith("postgresql:"):
        return FaultyPostgres(url, clock)
    return FaultySqlite(Path(url.removeprefix("sqlite:///")), clock)


def store_on(database: Faulty) -> Store:
    store = Store(database)
    store._shard = SHARD
    return store


def new_id() -> str:
    return uuid7()
