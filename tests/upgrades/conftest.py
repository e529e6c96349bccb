"""Lets a test add migrations to the code for as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from duly.store import migrate
from duly.store.call import Dialect
from duly.store.migrate import Migration
from tests.store.raw import Raw
from tests.upgrades.steps import later

Add = Callable[..., list[int]]


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    """Give the code further migrations; call it again to give it others. Returns their versions."""
    real = migrate.migrations

    def add(*texts: str) -> list[int]:
        monkeypatch.setattr(migrate, "migrations", real)
        added = {dialect: tuple(later(dialect, *texts)) for dialect in Dialect}

        def migrations(dialect: Dialect) -> tuple[Migration, ...]:
            return real(dialect) + added[dialect]

        monkeypatch.setattr(migrate, "migrations", migrations)
        return [step.version for step in added[Dialect.SQLITE]]

    return add


@pytest.fixture
def raw(database_url: str) -> Iterator[Raw]:
    """A connection beside those of the code."""
    raw = Raw(database_url)
    yield raw
    raw.close()
