"""libSQL in SQLite's place (`libsql:///file.db`): the same conformance suite, and what the package does differently.

The suite is every test of the modules named here, on a libSQL file: pytest collects them a second time because they
are imported, and finds the fixture `raw` below instead of the one for the other databases.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from duly.domain.errors import ConfigurationError, DatabaseUnavailable, UnsupportedDatabase
from duly.domain.ids import uuid7
from duly.domain.records import NewJob
from duly.store import libsql
from duly.store.store import Store
from tests.store import (
    invariants,
    test_claim,
    test_enqueue,
    test_enqueue_many,
    test_operators,
    test_promote_and_prune,
    test_renew_and_rescue,
    test_settle,
    test_unique,
)
from tests.store.processes import in_processes
from tests.store.raw import Raw

pytest.importorskip("libsql")

SUITE: tuple[ModuleType, ...] = (
    test_claim,
    test_enqueue,
    test_enqueue_many,
    test_operators,
    test_promote_and_prune,
    test_renew_and_rescue,
    test_settle,
    test_unique,
)
for module in SUITE:
    for name, member in vars(module).items():
        if name.startswith("test_") and callable(member):
            assert name not in globals(), f"two tests are called {name}"
            globals()[name] = member


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Raw]:
    """A migrated libSQL file without rows."""
    store = Store.open(f"libsql:///{tmp_path}/jobs.db")
    store.migrate()
    store.close()
    raw = Raw(f"libsql:///{tmp_path}/jobs.db")
    yield raw
    raw.close()


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = libsql.connect(f"{tmp_path}/jobs.db")
    yield connection
    connection.close()


@pytest.mark.requirement("D10")
def test_the_whole_suite_is_here() -> None:
    here = {name for name in globals() if name.startswith("test_")}
    for module in SUITE:
        assert {name for name in vars(module) if name.startswith("test_")} <= here


@pytest.mark.requirement("D10")
@pytest.mark.parametrize("number", [0, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_whole_numbers_stay_whole(connection: sqlite3.Connection, number: int) -> None:
    assert connection.execute("SELECT ?, typeof(?), ?", (number, number, "x")).fetchall() == [(number, "integer", "x")]


def test_a_statement_without_rows_has_none(connection: sqlite3.Connection) -> None:
    assert connection.execute("CREATE TABLE t (a integer PRIMARY KEY)").fetchall() == []
    assert connection.execute("INSERT INTO t VALUES (?) RETURNING a", (2**40,)).fetchone() == (2**40,)
    assert connection.execute("SELECT a FROM t WHERE a = 0").fetchone() is None


def test_errors_are_those_of_sqlite3(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        connection.execute("SELECT * FROM nowhere")
    connection.execute("CREATE TABLE t (a integer PRIMARY KEY)")
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        connection.execute("INSERT INTO t VALUES (1)").fetchall()


def test_transactions_are_as_told(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE t (a)")
    assert not connection.in_transaction
    connection.execute("BEGIN IMMEDIATE")
    assert connection.in_transaction
    connection.execute("INSERT INTO t VALUES (1)")
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "libsql", None)
    store = Store.open(f"libsql:///{tmp_path}/jobs.db")
    with pytest.raises(ConfigurationError, match="pip install libsql"):
        store.counts()


def test_what_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("not a database " * 100)
    store = Store.open(f"libsql:///{tmp_path}/jobs.db")
    with pytest.raises(UnsupportedDatabase, match="not a sound SQLite database"):
        store.counts()
    store.close()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    store = Store.open(f"libsql:///{tmp_path}/jobs.db")
    with pytest.raises(DatabaseUnavailable, match=r"cannot open .*jobs\.db"):
        store.counts()
    store.close()


@pytest.mark.requirement("D10")
def test_processes_with_either_library_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    done = [*in_processes("hammer", 4, f"libsql:///{path}", 20), *in_processes("hammer", 4, f"sqlite:///{path}", 20)]
    raw = Raw(f"sqlite:///{path}")
    assert raw.count("jobs") == 160
    assert sum(done) == raw.count("ended")
    assert raw.one("PRAGMA integrity_check") == "ok"
    invariants.check(raw)
    raw.close()


def test_a_worker_is_woken_by_the_files_version(tmp_path: Path) -> None:
    store = Store.open(f"libsql:///{tmp_path}/jobs.db")
    waker = store.waker(uuid7())
    waker.wait(0.05)
    store.enqueue(NewJob(id=uuid7(), task="t", args="{}"))
    assert waker.wait(5.0) != []
    waker.dispose()
    store.close()
