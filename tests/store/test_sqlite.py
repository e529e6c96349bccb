"""SQLite alone: many processes and threads on one file, disks that fill, files that cannot be written, forks."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from duly.domain.clock import SystemClock
from duly.domain.errors import ConfigurationError, DatabaseError, DatabaseUnavailable, UnsupportedDatabase
from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import Filter, Lane, NewJob
from duly.domain.states import State
from duly.store import filesystem, ops_enqueue, sqlite
from duly.store.call import Call, Dialect, Op
from duly.store.database import Hint
from duly.store.foreign import run_on
from duly.store.lockfile import LockFile
from duly.store.sqlite import SqliteDatabase
from duly.store.sqlite_wake import LOOK_EVERY
from duly.store.statements import Compiled, load, rewrite
from duly.store.store import Store
from tests.clock import TickingClock
from tests.store import invariants
from tests.store.factory import OTHER_WORKER, WORKER, add_worker
from tests.store.processes import PROGRAM, SOURCES, in_processes
from tests.store.raw import Raw

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local\\040disk xfs rw 0 0
//nas/share /mnt/share cifs rw 0 0
sshfs#x /mnt/ssh fuse.sshfs rw 0 0
"""


@pytest.fixture
def path(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(path, SystemClock(), busy_seconds=0.2)
    yield database
    database.close()


@pytest.fixture
def store(database: SqliteDatabase) -> Store:
    return Store(database)


def new_job(**options: Any) -> NewJob:
    return NewJob(id=uuid7(), task="t", args="{}", **options)


def job_count(path: Path) -> int:
    raw = Raw(f"sqlite:///{path}")
    try:
        return len(invariants.places_of(raw))
    finally:
        raw.close()


# -- many at once -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("D1")
def test_sixteen_processes_on_one_file_see_no_lock_and_share_no_job(sqlite_url: str) -> None:
    """F38: each enqueues, claims, finishes and reads; an error in any of them would end it and fail the test."""
    done = in_processes("hammer", 16, sqlite_url, 40)
    raw = Raw(sqlite_url)
    assert raw.count("jobs") == 16 * 40
    assert sum(done) == raw.count("ended") == raw.count("runs")
    assert raw.one("SELECT sum(runs) FROM duly.rollups") == sum(done)
    assert raw.one("PRAGMA integrity_check") == "ok"
    invariants.check(raw)
    raw.close()


def test_an_operation_behind_more_than_fit_into_one_commit_gets_its_own_answer(
    store: Store, database: SqliteDatabase, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "GROUP", 2)
    database._pending.extend(sqlite._Pending(enqueue_op()) for _ in range(5))
    assert store.enqueue(new_job()).created
    assert job_count(path) == 6


def test_more_threads_than_fit_into_one_commit_all_get_their_answers(store: Store, path: Path) -> None:
    ids = uuid7_many(sqlite.GROUP + 44)
    holding, go_on = threading.Event(), threading.Event()

    def hold() -> Op[None]:
        yield Call("clock", {"queue": "", "horizon": 0})
        holding.set()
        go_on.wait(20)

    with ThreadPoolExecutor(len(ids) + 1) as pool:
        held = pool.submit(store.run, hold)
        holding.wait(20)
        waiting = [pool.submit(store.enqueue, NewJob(id=job_id, task="t", args="{}")) for job_id in ids]
        while len(store.database._pending) < len(ids):  # type: ignore[attr-defined]
            time.sleep(0.001)
        go_on.set()
        held.result()
        assert [each.result() for each in waiting] == [(job_id, True) for job_id in ids]
    assert job_count(path) == len(ids)


@contextmanager
def one_commit(store: Store, operations: list[Callable[[], Op[Any]]]) -> Iterator[list[Any]]:
    """Have operations wait until all are there, so that they go into one commit. Yields their futures."""
    holding, go_on = threading.Event(), threading.Event()

    def hold() -> Op[None]:
        yield Call("clock", {"queue": "", "horizon": 0})
        holding.set()
        go_on.wait(20)

    with ThreadPoolExecutor(len(operations) + 1) as pool:
        held = pool.submit(store.run, hold)
        holding.wait(20)
        futures = []
        for n, operation in enumerate(operations, 1):
            futures.append(pool.submit(store.run, operation))
            while len(store.database._pending) < n:  # type: ignore[attr-defined]
                time.sleep(0.001)
        go_on.set()
        held.result()
        yield futures


def enqueue_op(**options: Any) -> Callable[[], Op[Any]]:
    job = new_job(**options)
    return lambda: ops_enqueue.enqueue(Dialect.SQLITE, job)


class Whim(Exception):
    """An error that is none of the database's."""


def enqueue_and_fail() -> Op[None]:
    yield from ops_enqueue.enqueue(Dialect.SQLITE, new_job())
    raise Whim("no")


def test_in_one_commit_an_operation_that_fails_does_not_spoil_the_others(store: Store, path: Path) -> None:
    operations = [enqueue_op(), enqueue_op(priority=1000), enqueue_op(), enqueue_and_fail, enqueue_op()]
    store.counts()
    with one_commit(store, operations) as futures:
        for good in (0, 2, 4):
            assert futures[good].result().created
        with pytest.raises(DatabaseError, match="CHECK constraint failed: priority"):
            futures[1].result()
        with pytest.raises(Whim):
            futures[3].result()
    assert job_count(path) == 3


def test_what_comes_before_the_first_statement_is_worked_out_while_others_write(store: Store) -> None:
    prepared, ran = threading.Event(), threading.Event()

    def long_to_prepare() -> Op[None]:
        prepared.set()
        yield Call("clock", {"queue": "", "horizon": 0})
        ran.set()

    beside = threading.Thread(target=store.run, args=[long_to_prepare])

    def hold() -> Op[bool]:
        yield Call("clock", {"queue": "", "horizon": 0})
        beside.start()
        return prepared.wait(20) and not ran.is_set()

    store.counts()
    assert store.run(hold), "worked out, and not run before its turn"
    beside.join(20)
    assert ran.is_set()


def test_alone_too_an_operation_that_fails_leaves_nothing_and_its_error_stays_what_it_is(
    store: Store, path: Path
) -> None:
    with pytest.raises(Whim):
        store.run(enqueue_and_fail)
    assert job_count(path) == 0
    assert store.enqueue(new_job()).created


def test_one_commit_serves_all_who_wait(store: Store, path: Path) -> None:
    store.counts()
    counting = sqlite3.connect(path)
    version = counting.execute("PRAGMA data_version").fetchone()[0]
    with one_commit(store, [enqueue_op() for _ in range(20)]) as futures:
        for future in futures:
            assert future.result().created
    assert counting.execute("PRAGMA data_version").fetchone()[0] - version <= 2
    counting.close()


def test_a_thread_told_to_stop_while_it_commits_for_others_harms_none_of_them(store: Store, path: Path) -> None:
    """Ctrl-C reaches the main thread in the middle of a commit that carries what other threads wait for."""
    stop = iter([True])

    def interrupted() -> Op[None]:
        yield Call("clock", {"queue": "", "horizon": 0})
        if next(stop, False):
            raise KeyboardInterrupt

    store.counts()
    with one_commit(store, [enqueue_op(), interrupted, enqueue_op()]) as futures:
        errors = [future.exception(20) for future in futures]
    assert [type(error) for error in errors if error] == [KeyboardInterrupt]
    assert job_count(path) == sum(errors[n] is None for n in (0, 2)) >= 1


class Interrupted(sqlite3.Connection):
    """A connection during one of whose statements a timeout is raised in its thread, as a worker does.

    Not by Python code around the statement: what is raised arrives at the next step of who has called.
    """

    left = -1

    @property
    def execute(self) -> Any:
        self.left -= 1
        if self.left == 0:
            once = map(
                ctypes.pythonapi.PyThreadState_SetAsyncExc,
                [ctypes.c_ulong(threading.get_ident())],
                [ctypes.py_object(TimeoutError)],
            )
            self.set_trace_callback(partial(dict.fromkeys, once))  # runs it with each statement, and it is run once
        return super().execute


def interrupted_database(path: Path) -> SqliteDatabase:
    return SqliteDatabase(
        path,
        SystemClock(),
        connect=lambda file: sqlite3.connect(
            file, isolation_level=None, check_same_thread=False, factory=Interrupted, cached_statements=0
        ),
    )


def test_a_timeout_that_comes_while_a_thread_commits_for_others_is_told_to_it_alone(path: Path) -> None:
    """At every statement of a commit in turn; what others asked for is stored once, and they are told so."""
    database = interrupted_database(path)
    store = Store(database)
    store.counts()
    store.enqueue(new_job())
    wanted, statement, timeouts, beside = 1, 0, list[type[BaseException]](), 0
    while len(timeouts) == statement:
        statement += 1
        before, mine, after = (sqlite._Pending(enqueue_op()) for _ in range(3))
        database._pending.extend([before, mine, after])
        assert isinstance(database._writer, Interrupted)
        database._writer.left = statement
        try:
            database._outcome(mine)
        except Exception as error:
            timeouts.append(type(error))
        database._writer.left = -1
        assert not database._writer.in_transaction, "or nobody else could write the file"
        assert [database._outcome(each).created for each in (before, after)] == [True, True], statement
        beside += mine.done
        wanted += 2 + (mine.done and mine.error is None)
        assert job_count(path) == wanted, statement
    assert set(timeouts) == {TimeoutError}, "and no error of the file"
    assert len(timeouts) > 12
    assert beside > 1, "the later ones come when all is stored"
    with LockFile(path.with_name(path.name + "-duly.lock")).held(1):
        pass
    store.close()


def test_a_timeout_that_comes_while_a_thread_looks_stays_a_timeout(path: Path) -> None:
    database = interrupted_database(path)
    store = Store(database)
    store.counts()
    (reader,) = database._readers._idle
    assert isinstance(reader, Interrupted)
    reader.left = 1
    with pytest.raises(TimeoutError) as caught:
        store.counts()
    assert caught.type is TimeoutError
    store.close()


def test_a_write_waits_for_the_lock_of_another_process_and_then_goes_on(path: Path) -> None:
    database = SqliteDatabase(path, SystemClock(), busy_seconds=20)
    store = Store(database)
    store.migrate()
    lock = os.open(f"{path}-duly.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.enqueue, new_job())
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert waiting.result(20).created
    os.close(lock)
    store.close()


def test_in_a_callers_transaction_too_a_job_whose_time_comes_between_two_statements_is_not_lost(path: Path) -> None:
    clock = TickingClock()
    database = SqliteDatabase(path, clock)
    caller = sqlite3.connect(path, isolation_level=None)
    for ahead in range(1, 20):
        job = new_job(run_at=clock.now_us() + ahead)
        run_on(caller, lambda job=job: ops_enqueue.enqueue(Dialect.SQLITE, job), database=database)  # type: ignore[misc]
    caller.close()
    database.close()
    assert job_count(path) == 19


def test_every_statement_has_a_plain_mark_for_each_parameter() -> None:
    """Python 3.12 to 3.12.3 take ?1 for a named parameter, warn each time, and promise to refuse it."""
    compiled = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False)
    for name in load(Dialect.SQLITE):
        sql, order = compiled.get(name)
        assert sql.count("?") == len(order), name
        assert not re.search(r"\?\d", sql), name


# -- a long lane ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement, searched", [("next_task", "tenant=? AND task>?"), ("next_tenant", "tenant>?")])
def test_the_next_lane_is_searched_for_by_the_index(path: Path, statement: str, searched: str) -> None:
    sql, order = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False).get(statement)
    connection = sqlite3.connect(path)
    plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("",) * len(order))]
    connection.close()
    assert len(plan) == 1
    assert plan[0].startswith("SEARCH")
    assert plan[0].endswith(f"USING PRIMARY KEY (queue=? AND suspect=? AND {searched})")


def test_to_see_which_lanes_have_jobs_takes_no_longer_for_a_long_one(path: Path) -> None:
    """Counted in the steps of SQLite's machine, each of which is far less than one row."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    def connect(file: str) -> sqlite3.Connection:
        connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        connection.set_progress_handler(count, 1)
        return connection

    def steps_to_look() -> int:
        nonlocal steps
        before = steps
        assert [lane for lane, _ in looking.lanes("default")] == lanes
        return steps - before

    lanes = [Lane(tenant, task) for tenant in ("", "a", "b") for task in ("t", "u")]
    looking, writing = Store(SqliteDatabase(path, SystemClock(), connect=connect)), Store.open(f"sqlite:///{path}")
    for lane in lanes:
        writing.enqueue_many(NewJob(id="", task=lane.task, args="{}", tenant=lane.tenant), fresh_rows(10))
    looking.lanes("default")
    short = steps_to_look()
    for lane in (lanes[0], lanes[3]):
        writing.enqueue_many(NewJob(id="", task=lane.task, args="{}", tenant=lane.tenant), fresh_rows(50_000))
    assert steps_to_look() < 1.2 * short
    looking.close()
    writing.close()


def fresh_rows(n: int) -> list[tuple[str, str, str | None]]:
    return [(job_id, "{}", None) for job_id in uuid7_many(n)]


# -- locked, read-only, not a database ----------------------------------------------------------------------------


def test_a_file_locked_by_another_program_is_named_and_mends_itself(store: Store, path: Path) -> None:
    store.counts()
    browser = sqlite3.connect(path, isolation_level=None)
    browser.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match=r"has been locked by another program.*a transaction left open"):
        store.enqueue(new_job())
    assert store.database.unbroken_us() < 100_000, "whoever cannot write must not judge who is alive"
    assert store.counts().waiting == [], "readers go on"
    browser.execute("ROLLBACK")
    assert store.enqueue(new_job()).created
    browser.close()


def test_a_process_that_stopped_while_it_wrote_is_hinted_at(store: Store, path: Path) -> None:
    store.migrate()
    lock = os.open(f"{path}-duly.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(DatabaseUnavailable, match=r"held by another process.*SIGSTOP"):
        store.enqueue(new_job())
    os.close(lock)
    assert store.enqueue(new_job()).created


def test_a_first_look_at_tables_that_fit_waits_for_no_writer(path: Path) -> None:
    """Somebody who only looks (a dashboard, `duly list`) neither waits for a long write nor makes one wait."""
    writer = sqlite3.connect(path, isolation_level=None)
    held = LockFile(path.with_name(path.name + "-duly.lock"))
    store = Store(SqliteDatabase(path, SystemClock(), busy_seconds=0.2))
    with held.held(1):
        writer.execute("BEGIN IMMEDIATE")
        assert store.counts().ended == {}
        assert store.workers() == []
        with pytest.raises(DatabaseUnavailable):
            store.enqueue(new_job())
        writer.execute("COMMIT")
    assert store.enqueue(new_job()).created
    held.close()
    writer.close()
    store.close()


def test_a_first_look_makes_the_tables_where_there_are_none(tmp_path: Path) -> None:
    for name in ("absent.db", "empty.db"):
        (tmp_path / "empty.db").touch()
        store = Store.open(f"sqlite:///{tmp_path / name}")
        assert store.counts().ended == {}
        assert store.enqueue(new_job()).created
        store.close()


def test_the_write_lock_is_taken_before_the_first_look(store: Store, path: Path) -> None:
    """Else a foreign writer between our look and our write would make that fail, however long it waits (F38)."""
    foreign = sqlite3.connect(path, timeout=0, isolation_level=None)

    def look_then_write() -> Op[None]:
        yield Call("clock", {"queue": "", "horizon": 0})
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            foreign.execute("CREATE TABLE somebody_elses (x)")
        yield from ops_enqueue.enqueue(Dialect.SQLITE, new_job())

    store.counts()
    store.run(look_then_write)
    foreign.close()
    assert job_count(path) == 1


def test_what_is_not_a_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = "Dear diary, this is not a database. " * 100
    path = tmp_path / "diary.txt"
    path.write_text(text)
    store = Store.open(f"sqlite:///{path}")
    with pytest.raises(UnsupportedDatabase, match=r"diary\.txt is not a sound SQLite database"):
        store.enqueue(new_job())
    store.close()
    assert path.read_text() == text


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/nowhere/jobs.db")
    for use in (store.counts, store.migrate):
        with pytest.raises(DatabaseUnavailable, match=f"the folder {tmp_path}/nowhere does not exist. Create it first"):
            use()
    store.close()


def test_a_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    store = Store.open(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(DatabaseUnavailable, match=r"cannot open .*jobs\.db"):
        store.counts()
    store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://relative.db"])
def test_an_address_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"names no file.*sqlite:///relative\.db"):
        Store.open(url)


READ_ONLY = """
import os, sys
from duly.domain.errors import DulyError
from duly.domain.ids import uuid7
from duly.domain.records import NewJob
from duly.store.store import Store
loaded = Store.open(sys.argv[2])
loaded.enqueue(NewJob(id=uuid7(), task="t", args="{}"))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
store = Store.open(sys.argv[1])
try:
    store.enqueue(NewJob(id=uuid7(), task="t", args="{}"))
except DulyError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_or_folder_that_may_not_be_written_is_named(path: Path, tmp_path: Path, what: str) -> None:
    """In a process that gives up the rights of root, for whom everything may be written."""
    with TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        path = Path(shutil.copy(path, folder / "duly.db"))
        path.chmod(0o444)
        folder.chmod(0o777 if what == "file" else 0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, f"sqlite:///{path}", f"sqlite:///{tmp_path}/other.db"],
            env={"PYTHONPATH": SOURCES},
            capture_output=True,
            text=True,
            check=False,
        )
        folder.chmod(0o755)
    if what == "file":
        assert re.match(r"DatabaseUnavailable .*duly\.db is read-only: .*Give this user the right", done.stdout), done
    else:
        assert re.match(r"DatabaseUnavailable cannot make the lock file .*: Permission denied\.", done.stdout), done


# -- network disks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where,kind",
    [
        ("/var/lib", "ext4"),
        ("/tmp/x", "tmpfs"),
        ("/tmpfoo", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/local disk/me", "xfs"),
        ("/mnt/share", "cifs"),
        ("/mnt/ssh/deep/down", "fuse.sshfs"),
    ],
)
def test_the_disk_that_a_folder_is_on_is_known(where: str, kind: str) -> None:
    assert filesystem.kind_of(Path(where), MOUNTS) == kind
    assert filesystem.is_network(Path(where), MOUNTS) == (kind in ("nfs4", "cifs", "fuse.sshfs"))


def test_the_room_on_a_disk_is_what_the_system_says(tmp_path: Path) -> None:
    assert filesystem.free_bytes(tmp_path) == pytest.approx(shutil.disk_usage(tmp_path).free, abs=1 << 28)


def test_where_the_system_does_not_say_no_disk_is_refused() -> None:
    assert not filesystem.is_network(Path("/home"), "")


def test_a_network_disk_is_refused_before_anything_is_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F42."""
    kind_of = filesystem.kind_of
    mounts = MOUNTS + f"server:/x {tmp_path} nfs rw 0 0\n"
    monkeypatch.setattr(filesystem, "kind_of", lambda path, given=None: kind_of(path, given or mounts))
    store = Store.open(f"sqlite:///{tmp_path}/jobs.db")
    for use in (store.counts, store.migrate):
        with pytest.raises(UnsupportedDatabase, match=r"on a network disk \(nfs\).*allow_network_disk"):
            use()
    store.close()
    assert list(tmp_path.iterdir()) == []
    forced = SqliteDatabase(tmp_path / "jobs.db", SystemClock(), allow_network_disk=True)
    assert forced.migrate()[0] == 1
    forced.close()


def test_a_version_of_sqlite_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    store = Store.open(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(UnsupportedDatabase, match=r"needs 3\.35 or newer"):
        store.counts()


# -- full disks ---------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of a few megabytes, where this machine lets us make one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(store: Store, until: type[Exception]) -> tuple[int, str]:
    """Enqueue until it fails. Returns how many jobs were stored, and the error."""
    stored = 0
    for _ in range(1_000):
        rows = [(job_id, '{"x": "' + "y" * 2_000 + '"}', None) for job_id in uuid7_many(50)]
        try:
            store.enqueue_many(new_job(), rows)
        except until as error:
            return stored, str(error)
        stored += 50
    raise AssertionError("it never became full")


def test_a_full_disk_is_named_loses_nothing_and_is_recovered_from(tmp_path: Path) -> None:
    """F44."""
    with small_disk(tmp_path, "3m"):
        store = Store.open(f"sqlite:///{tmp_path}/jobs.db")
        (tmp_path / "ballast").write_bytes(b"x" * 1_000_000)
        stored, error = fill(store, DatabaseUnavailable)
        assert re.search(r"cannot write .*(full|I/O error).*Free some space; nothing that was committed is lost", error)
        assert stored > 0
        assert sum(row[3] for row in store.counts().waiting) == stored
        with pytest.raises(DatabaseUnavailable):
            fill(store, KeyError)
        (tmp_path / "ballast").unlink()
        assert store.enqueue(new_job()).created
        assert store.claim("default", [Lane("", "t")], 1, worker_id=WORKER, lease_us=1_000_000)
        store.close()
        assert job_count(tmp_path / "jobs.db") >= stored + 1


def test_a_file_at_its_size_limit_is_named_loses_nothing_and_is_recovered_from(path: Path, store: Store) -> None:
    """The same by a limit of the process, which is had everywhere: writing answers EFBIG."""
    store.counts()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        stored, error = fill(store, DatabaseUnavailable)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot write" in error
    assert job_count(path) == stored
    assert store.enqueue(new_job()).created


def test_a_full_disk_fails_all_who_are_in_the_commit_and_stores_none_of_them(path: Path, store: Store) -> None:
    store.counts()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    big = [enqueue_op(headers="h" * 400_000) for _ in range(4)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, before[1]))
    try:
        with one_commit(store, [enqueue_op(), *big, enqueue_op()]) as futures:
            errors = [future.exception(20) for future in futures]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    failed = [error for error in errors if error is not None]
    assert failed
    assert all(isinstance(error, DatabaseUnavailable) for error in failed)
    assert job_count(path) == len(errors) - len(failed)


# -- the write-ahead log ------------------------------------------------------------------------------------------


def test_commits_are_written_through(path: Path, store: Store, database: SqliteDatabase) -> None:
    """F39: WAL with synchronous=FULL, so that a returned enqueue survives a power cut; NORMAL only if asked."""
    store.enqueue(new_job())
    assert database._writer is not None
    assert database._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert database._writer.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    fast = SqliteDatabase(path, SystemClock(), synchronous="normal")
    Store(fast).enqueue(new_job())
    assert fast._writer is not None
    assert fast._writer.execute("PRAGMA synchronous").fetchone() == (1,)
    fast.close()


def test_the_log_stays_short_while_others_read_all_the_time(sqlite_url: str, path: Path) -> None:
    """F41: two readers that poll as dashboards do, while another process writes many times what the log may hold."""
    over, largest = threading.Event(), [0]
    store = Store.open(sqlite_url)

    def poll() -> None:
        while not over.is_set():
            store.counts()
            largest[0] = max(largest[0], Path(f"{path}-wal").stat().st_size)

    store.counts()
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(poll), pool.submit(poll)]
        in_processes("write_on", 1, sqlite_url, 40_000)
        over.set()
        for reader in readers:
            reader.result()
    store.close()
    assert path.stat().st_size > 20 << 20
    assert largest[0] < 64 << 20


def test_a_reader_that_stays_does_not_slow_every_write(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a backup holds a snapshot the log cannot be cut; trying is limited to now and then."""
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", 1 << 10)
    monkeypatch.setattr(sqlite, "RESET_BYTES", 1 << 14)
    store.enqueue_many(new_job(), [(job_id, "{}", None) for job_id in uuid7_many(200)])
    backup = sqlite3.connect(path, isolation_level=None)
    backup.execute("BEGIN")
    backup.execute("SELECT count(*) FROM duly_jobs").fetchone()
    began = time.monotonic()
    for _ in range(40):
        store.enqueue(new_job())
    assert time.monotonic() - began < 40 * 0.05 / 2
    backup.execute("COMMIT")
    backup.close()


def test_a_checkpoint_that_fails_does_not_unsay_the_commit(
    database: SqliteDatabase, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", 0)
    store.migrate()
    writer = database._writer

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(writer, name)

        def execute(self, sql: str, params: Any = ()) -> Any:
            if "wal_checkpoint" in sql:
                raise sqlite3.OperationalError("disk I/O error")
            assert writer is not None
            return writer.execute(sql, params)

    database._next_checkpoint = 0.0
    database._writer = Failing()  # type: ignore[assignment]
    assert store.enqueue(new_job()).created
    assert database._next_checkpoint > 0, "it did try"
    database._writer = writer
    assert job_count(path) == 1


def test_a_storm_of_checkpoints_harms_nothing(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """F40: every commit of every thread is followed by one."""
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", 0)
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAUSE", 0.0)
    stores = [Store.open(sqlite_url) for _ in range(4)]

    def hammer(store: Store) -> None:
        for _ in range(50):
            store.enqueue(new_job())
            store.counts()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(hammer, stores))
    for store in stores:
        store.close()
    raw = Raw(sqlite_url)
    assert raw.count("jobs") == 200
    assert raw.one("PRAGMA integrity_check") == "ok"
    raw.close()


# -- forks --------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], str]) -> str:
    """Fork, do something in the child, and return what it says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException as error:
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on, beside threads
def test_a_fork_with_open_connections_harms_neither_side(store: Store, path: Path) -> None:
    """F43: the child drops what it inherited, without closing it, and opens its own."""
    job = new_job()
    store.enqueue(job)
    store.counts()

    def work() -> str:
        for _ in range(20):
            store.enqueue(new_job())
        n = store.counts().waiting[0][3]
        store.close()
        return str(n)

    assert in_child(work) == "21"
    for _ in range(20):
        store.enqueue(new_job())
    assert store.get(job.id) is not None
    assert in_child(work) == "61"
    assert job_count(path) == 61
    raw = Raw(f"sqlite:///{path}")
    assert raw.one("PRAGMA integrity_check") == "ok"
    raw.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on, beside threads
def test_a_child_that_closes_what_it_inherited_leaves_the_parents_alone(store: Store) -> None:
    store.enqueue(new_job())

    def work() -> str:
        store.close()
        return "closed"

    assert in_child(work) == "closed"
    assert store.counts().waiting[0][3] == 1
    assert store.enqueue(new_job()).created


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on, beside threads
def test_what_a_forked_child_stores_outlives_the_parents_connections(store: Store, path: Path) -> None:
    """SQLite would note in the child that the parent's lock is its own: then nobody sees that the child has it open."""
    store.enqueue(new_job())
    store.counts()
    (heard, told), (seen, stored) = os.pipe(), os.pipe()

    def work() -> str:
        store.enqueue(new_job())
        os.write(stored, b"x")
        os.read(heard, 1)
        for _ in range(10):
            store.enqueue(new_job())
        store.close()
        return "stored"

    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(in_child, work)
        os.read(seen, 1)
        store.close()  # the last connection, but for the child's
        with closing(sqlite3.connect(path)) as another:
            assert another.execute("SELECT count(*) FROM duly_jobs").fetchone() == (2,)
        os.write(told, b"x")
        assert child.result(20) == "stored"
    for end in (heard, told, seen, stored):
        os.close(end)
    assert job_count(path) == 12


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on, beside threads
def test_children_forked_while_other_threads_read_and_write_can_write_at_once(store: Store, path: Path) -> None:
    over = threading.Event()
    store.enqueue(new_job())

    def go_on() -> int:
        n = 0
        while not over.is_set():
            store.enqueue(new_job())
            store.counts()
            n += 1
        return n

    with ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(go_on) for _ in range(4)]
        try:
            said = [in_child(lambda: str(store.enqueue(new_job()).created)) for _ in range(12)]
        finally:
            over.set()
        stored = sum(each.result(20) for each in busy)
    assert said == ["True"] * 12
    assert job_count(path) == 1 + stored + 12


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on, beside threads
def test_a_child_forked_in_the_middle_of_a_write_does_not_wait_for_what_will_never_come(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of the parent holds every lock, and does not let go in time: the child is told, and may look."""
    monkeypatch.setattr("duly.store.forks.FORK_SECONDS", 0.2)
    store.counts()
    holding, go_on = threading.Event(), threading.Event()

    def hold() -> Op[None]:
        yield from ops_enqueue.enqueue(Dialect.SQLITE, new_job())
        holding.set()
        go_on.wait(20)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.run, hold)
        holding.wait(20)
        said = in_child(lambda: str(store.enqueue(new_job()).created))
        seen = in_child(lambda: str(len(store.counts().waiting)))
        go_on.set()
        writing.result()
    assert "was in use when this process was forked" in said
    assert seen == "0", "to look it need not wait"
    assert in_child(lambda: str(len(store.counts().waiting))) == "1"


LOCK_AND_FORK = """
import os, sys, time
from pathlib import Path
from duly.store.lockfile import LockFile
lock = LockFile(Path(sys.argv[1]))
with lock.held(1):
    if os.fork() == 0:
        os.setsid()
        print("child", flush=True)
        time.sleep(30)
    time.sleep(30)
"""


def test_a_lock_does_not_outlive_its_process_in_a_forked_child(store: Store, path: Path) -> None:
    """flock is shared with forked children: were it not given up there, it would be held until they end."""
    store.counts()
    program = [sys.executable, "-c", LOCK_AND_FORK, f"{path}-duly.lock"]
    parent = subprocess.Popen(program, env={"PYTHONPATH": SOURCES}, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "child\n"
    parent.kill()
    parent.wait()
    try:
        assert store.enqueue(new_job()).created
    finally:
        children = subprocess.run(["pgrep", "-f", f"{path}-duly.lock"], capture_output=True, text=True, check=False)
        for child in children.stdout.split():
            os.kill(int(child), 9)
        parent.stdout.close()


def test_a_killed_writer_leaves_nothing_locked_and_nothing_half_done(sqlite_url: str) -> None:
    """SIGKILL in the middle of writing, several times over."""
    store, raw = Store.open(sqlite_url), Raw(sqlite_url)
    for _ in range(4):
        before = raw.count("jobs")
        writer = subprocess.Popen(
            [sys.executable, str(PROGRAM), "write_on", "1", sqlite_url, "200000"],
            env={**os.environ, "PYTHONPATH": SOURCES},
            start_new_session=True,
        )
        while raw.count("jobs") == before:
            time.sleep(0.01)
        os.killpg(writer.pid, 9)
        writer.wait()
        assert store.enqueue(new_job()).created
    store.close()
    assert raw.one("PRAGMA integrity_check") == "ok"
    invariants.check(raw)
    raw.close()


# -- waking -------------------------------------------------------------------------------------------------------


def wait_for(waker: Any, seconds: float = 5.0) -> list[Hint]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if hints := waker.wait(deadline - time.monotonic()):
            return list(hints)
    return []


def test_an_enqueue_pokes_a_sleeping_worker_with_what_came(store: Store) -> None:
    waker = store.waker(WORKER)
    add_worker(store, wake=waker.address)
    wait_for(waker, 0.1)
    store.enqueue(new_job(queue="mail", tenant="acme"))
    assert wait_for(waker) == [Hint("jobs", "mail", "acme", "t")]
    store.enqueue_many(new_job(queue="later"), [(job_id, "{}", None) for job_id in uuid7_many(2)])
    ((_, rank),) = store.lanes("later")
    assert wait_for(waker) == [Hint("jobs", "later", "", "t", rank)], "of many the rank is known"
    waker.dispose()


def test_a_foreign_writer_is_noticed_by_the_files_version(store: Store, path: Path) -> None:
    waker = store.waker(WORKER)
    wait_for(waker, 3 * LOOK_EVERY)
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE somebody_elses (x)")
    other.close()
    assert [hint.kind for hint in wait_for(waker)] == ["changed"]
    waker.dispose()


def test_nothing_new_means_no_hint(store: Store) -> None:
    waker = store.waker(WORKER)
    assert waker.wait(3 * LOOK_EVERY) == []
    waker.dispose()


def test_closing_ends_a_wait_and_disposing_removes_the_socket(store: Store) -> None:
    waker = store.waker(WORKER)
    assert waker.address is not None
    assert Path(waker.address).exists()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waker.wait, 60.0)
        waker.close()
        assert waiting.result(10) == []
    waker.dispose()
    assert not Path(waker.address).exists()


def test_a_path_too_long_for_a_socket_does_without(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    store = Store.open(f"sqlite:///{folder}/jobs.db")
    waker = store.waker(WORKER)
    assert waker.address is None
    wait_for(waker, 3 * LOOK_EVERY)
    store.enqueue(new_job())
    assert [hint.kind for hint in wait_for(waker)] == ["changed"]
    waker.dispose()
    store.close()


def test_poking_workers_that_are_gone_is_no_error(store: Store) -> None:
    add_worker(store, wake="/nowhere/at/all.sock")
    add_worker(store, OTHER_WORKER)
    assert store.enqueue(new_job()).created


def test_one_job_is_found_without_looking_at_all_the_others(sqlite_url: str) -> None:
    plan = rewrite(load(Dialect.SQLITE)["get_job"], param=lambda _: "?", table="duly_", casts=False)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {plan}", ("x", "x"))]
    assert [step for step in steps if step.startswith("SCAN") and "places" not in step] == []


@pytest.mark.parametrize("state", [None, State.QUEUED, State.SCHEDULED, State.RUNNING, State.SUCCEEDED, State.DISABLED])
def test_a_page_of_a_list_looks_up_its_jobs_by_key(sqlite_url: str, state: State | None) -> None:
    """The view of places would otherwise be made whole for each page."""
    store = Store.open(sqlite_url)
    store.enqueue_many(NewJob(id=uuid7(), task="t", args="{}"), [(uuid7(), "{}", None) for _ in range(5)])
    compiled = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        sql, _ = compiled.get("jobs_of")
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ["[]"] * sql.count("?"))]
    assert not [line for line in plan if line.startswith("SCAN duly_")], plan
    assert len(store.find(Filter(state=state, limit=3))) == (3 if state in (None, State.QUEUED) else 0)
    store.close()
