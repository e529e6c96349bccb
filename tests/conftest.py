"""What every test may ask for: a fresh database on each supported kind, and the promise that nothing leaks.

    def test_on_every_database(database_url: str) -> None: ...      # SQLite and PostgreSQL 18
    @pytest.mark.everywhere                                         # and PostgreSQL 15 where installed
    def test_only_postgres(pg_url: str, pg_kind: Kind) -> None: ...
    def test_only_sqlite(sqlite_url: str) -> None: ...
    def test_through_the_application(jobs: Duly, ledger: Ledger) -> None: ...   # `lite` instead: on SQLite alone

`--databases=sqlite,pg18,pg15` (or `all`, or $DULY_TEST_DATABASES) runs every test on just those. Databases and
`tmp_path` are in memory where there is room for them; DULY_TEST_DISK=1 has them on the disk.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from duly import Duly
from tests.databases import ALL, BY_DEFAULT, Databases, Kind, is_installed, start_postgres
from tests.helpers import Ledger, opened
from tests.pool import LEAK_SECONDS
from tests.postgres import PostgresServer, memory

hypothesis.settings.register_profile("duly", deadline=None)  # a busy machine makes no example wrong
hypothesis.settings.load_profile("duly")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--databases",
        default=os.environ.get("DULY_TEST_DATABASES", ""),
        help="run every test on these: sqlite, pg18, pg15, separated by commas; or all that are installed",
    )


def pytest_configure(config: pytest.Config) -> None:
    chosen_kinds(config)  # a wrong choice is refused before anything is collected
    tempfile.tempdir = memory()  # and with it `tmp_path`; None is the usual place
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:  # started in the background by a shell: processes inherit it
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def pytest_report_header(config: pytest.Config) -> str:
    chosen = chosen_kinds(config)
    if chosen is not None:
        return f"databases: {', '.join(chosen)}"
    names = [kind if kind in BY_DEFAULT else f"{kind} (only tests marked everywhere)" for kind in installed(ALL)]
    return f"databases: {', '.join(names)}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database_kind" in metafunc.fixturenames:
        metafunc.parametrize("database_kind", kinds_for(metafunc))
    if "pg_kind" in metafunc.fixturenames:
        metafunc.parametrize("pg_kind", [kind for kind in kinds_for(metafunc) if kind.is_postgres])


def kinds_for(metafunc: pytest.Metafunc) -> list[Kind]:
    chosen = chosen_kinds(metafunc.config)
    if chosen is not None:
        return chosen
    everywhere = metafunc.definition.get_closest_marker("everywhere") is not None
    return installed(ALL if everywhere else BY_DEFAULT)


def chosen_kinds(config: pytest.Config) -> list[Kind] | None:
    """Return what was asked for by option or environment, or None for the default."""
    text: str = config.getoption("--databases")
    if not text:
        return None
    if text == "all":
        return installed(ALL)
    try:
        kinds = [Kind(name.strip()) for name in text.split(",")]
    except ValueError as error:
        raise pytest.UsageError(f"--databases: {error}; choose from {', '.join(ALL)}, or all") from None
    for kind in kinds:
        if not is_installed(kind):
            raise pytest.UsageError(f"--databases: {kind} is not installed")
    return kinds


def installed(kinds: tuple[Kind, ...]) -> list[Kind]:
    return [kind for kind in kinds if is_installed(kind)]


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """The session's servers and templates, for a test that needs several databases at once."""
    databases = Databases(tmp_path_factory.mktemp("databases"))
    try:
        yield databases
    finally:
        databases.close()


@pytest.fixture
def database_url(databases: Databases, database_kind: Kind) -> Iterator[str]:
    """The URL of a migrated database without rows; the test runs once on each kind."""
    with databases.fresh(database_kind) as url:
        yield url


@pytest.fixture
def empty_database_url(databases: Databases, database_kind: Kind) -> Iterator[str]:
    """The URL of a database without any table; the test runs once on each kind."""
    with databases.fresh(database_kind, prepared=False) as url:
        yield url


@pytest.fixture
def sqlite_url(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a migrated SQLite database, for a test about SQLite alone."""
    chosen = chosen_kinds(request.config)
    if chosen is not None and Kind.SQLITE not in chosen:
        pytest.skip("not run on SQLite this time")
    with databases.fresh(Kind.SQLITE) as url:
        yield url


@pytest.fixture
def pg_url(databases: Databases, pg_kind: Kind) -> Iterator[str]:
    """The URL of a migrated PostgreSQL database, for a test about PostgreSQL alone."""
    with databases.fresh(pg_kind) as url:
        yield url


@pytest.fixture
def jobs(database_url: str) -> Iterator[Duly]:
    """A `Duly` on a fresh database; the test runs once on each kind."""
    with opened(database_url) as jobs:
        yield jobs


@pytest.fixture
def lite(sqlite_url: str) -> Iterator[Duly]:
    """A `Duly` on SQLite alone, for what does not depend on the database."""
    with opened(sqlite_url) as jobs:
        yield jobs


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """An empty ledger."""
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def pg_server(pg_kind: Kind) -> Iterator[PostgresServer]:
    """A server of this test's own, to stop, start and crash; its databases are not migrated."""
    server = start_postgres(pg_kind)
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(autouse=True)
def no_thread_of_ours_is_left() -> Iterator[None]:
    """Fail a test that ends while threads it started, named `duly-*`, go on."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + LEAK_SECONDS
    ours = [t for t in threading.enumerate() if t.name.startswith("duly-") and t not in before]
    for thread in ours:
        thread.join(max(0.0, deadline - time.monotonic()))
    if left := [thread.name for thread in ours if thread.is_alive()]:
        pytest.fail(f"threads are still running: {', '.join(left)}")
