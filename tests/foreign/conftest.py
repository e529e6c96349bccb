"""A caller of each library, on a fresh database, beside a store that looks at the same database from outside.

`@pytest.mark.callers("postgres")`, `("autocommit")` or `("implicit")` runs a test only with such callers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import psycopg
import pytest
from _pytest.mark import ParameterSet

from duly.store.store import Store
from tests.databases import ALL, BY_DEFAULT, Databases, Kind, is_installed
from tests.foreign.callers import ON_POSTGRES, ON_SQLITE, Caller, missing_for


class Case(NamedTuple):
    """One library on one database."""

    kind: Kind
    caller: type[Caller]

    def is_a(self, word: str) -> bool:
        match word:
            case "postgres":
                return self.kind.is_postgres
            case "autocommit":
                return self.caller.autocommit
            case "implicit":
                return not self.caller.autocommit
            case _:
                raise ValueError(word)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "callers(word): only with callers that are postgres, autocommit or implicit")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("callers")
        metafunc.parametrize("case", list(cases(metafunc.config, *(only.args if only else ()))), scope="module")


def cases(config: pytest.Config, *words: str) -> Iterator[ParameterSet]:
    chosen: str = config.getoption("--databases")
    wanted = BY_DEFAULT if not chosen else ALL if chosen == "all" else tuple(map(Kind, chosen.split(",")))
    for kind in filter(is_installed, wanted):
        for name, caller in (ON_POSTGRES if kind.is_postgres else ON_SQLITE).items():
            case = Case(kind, caller)
            if all(map(case.is_a, words)):
                needed = missing_for(name, caller)
                skip = pytest.mark.skipif(needed is not None, reason=f"{needed} is not installed")
                yield pytest.param(case, id=f"{kind}-{name}", marks=skip)


TABLES = ("jobs", "scheduled", "waiting", "parked", "running", "ended", "runs", "unique_keys")


@pytest.fixture(scope="module")
def url(databases: Databases, case: Case) -> Iterator[str]:
    """The address of a migrated database with a table of the application's own, `notes`."""
    with databases.fresh(case.kind) as url:
        by_hand(url, "CREATE TABLE notes (text varchar(40))")
        yield url


@pytest.fixture(scope="module")
def shared_store(url: str) -> Iterator[Store]:
    with closing(Store.open(url)) as store:
        store.counts()
        yield store


@pytest.fixture
def store(shared_store: Store, url: str, case: Case) -> Store:
    """Looks at the database, which is empty, from outside. Already in use, as in a running application."""
    prefix = "duly." if case.kind.is_postgres else "duly_"
    by_hand(url, "DELETE FROM notes", *(f"DELETE FROM {prefix}{table}" for table in TABLES))
    return shared_store


@pytest.fixture
def caller(case: Case, url: str, store: Store) -> Iterator[Caller]:
    """An application with a connection of its own."""
    with closing(case.caller(url)) as caller:
        yield caller


def by_hand(url: str, *statements: str) -> None:
    with closing(connect(url)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def notes(url: str) -> list[str]:
    """The application's own rows, as others see them."""
    with closing(connect(url)) as connection:
        return [str(row[0]) for row in connection.execute("SELECT text FROM notes ORDER BY text").fetchall()]


def connect(url: str) -> psycopg.Connection | sqlite3.Connection:
    if url.startswith("postgres"):
        return psycopg.connect(url)
    return sqlite3.connect(url.removeprefix("sqlite:///"))
