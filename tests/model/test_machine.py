"""Whatever order of steps is done to a store, it does what the model does; and SQLite and PostgreSQL do the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.conftest import chosen_kinds
from tests.databases import Databases, Kind
from tests.model.search import run
from tests.store.raw import Raw


@pytest.fixture
def both(databases: Databases, request: pytest.FixtureRequest) -> Iterator[tuple[Raw, Raw]]:
    """An SQLite and a PostgreSQL database."""
    kinds = chosen_kinds(request.config) or [Kind.SQLITE, Kind.PG18]
    postgres = [kind for kind in kinds if kind.is_postgres]
    if Kind.SQLITE not in kinds or not postgres:
        pytest.skip("needs both kinds of database")
    with ExitStack() as stack:
        urls = [stack.enter_context(databases.fresh(kind)) for kind in (Kind.SQLITE, postgres[0])]
        lite, post = (stack.enter_context(closing(Raw(url))) for url in urls)
        yield lite, post


def test_a_store_does_what_the_model_does(raw: Raw) -> None:
    run(raw, examples=24 if raw.is_postgres else 80, steps=30)


def test_sqlite_and_postgresql_do_the_same(both: tuple[Raw, Raw]) -> None:
    run(*both, examples=15, steps=30)


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_a_store_does_what_the_model_does_for_long(raw: Raw) -> None:
    run(raw, examples=80 if raw.is_postgres else 250, steps=60, seed=1)


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_sqlite_and_postgresql_do_the_same_for_long(both: tuple[Raw, Raw]) -> None:
    run(*both, examples=60, steps=60, seed=1)
