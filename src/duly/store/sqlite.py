"""SQLite: one file, any number of processes on one host.

Every write is `BEGIN IMMEDIATE` under a lock file of our own, so processes queue instead of sleeping in SQLite's busy
handler, and checkpoints never race a writer of ours. In a process, the thread that gets the leader's lock commits
for all that wait, each operation in its own savepoint. WAL, synchronous=FULL unless asked otherwise.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from duly.domain.clock import Clock
from duly.domain.errors import DatabaseError, DatabaseUnavailable, DulyError, UnsupportedDatabase
from duly.store import filesystem, forks, migrate, ops_workers
from duly.store.call import FAILED, Call, CopyIn, Dialect, Foreign, Op, Row, Rows
from duly.store.database import Hint
from duly.store.lockfile import LockFile
from duly.store.migrate import SchemaVersion
from duly.store.sqlite_migrate import Progress, migrate_some, read_version
from duly.store.sqlite_readers import Readers
from duly.store.sqlite_wake import SqliteWaker, poke_sockets
from duly.store.statements import Compiled
from duly.store.tally import Tally

R = TypeVar("R")
CHECKPOINT_BYTES = 4 << 20
RESET_BYTES = 24 << 20
CHECKPOINT_PAUSE = 0.25
BUSY_SECONDS = 30.0
GROUP = 256
HANDOVER = 20e-6
"""How long who has written lets go of the interpreter if others wait: they cannot take the lock without it."""
LONG_WAIT = 1.0
_FULL = ("database or disk is full", "disk I/O error")
_COMMIT = ("COMMIT",)


DESKS = (
    """CREATE TEMP TABLE duly_leasing (
        id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, rank,
        args, max_attempts, retry, timeout_us, expires_at, created_at, headers, limit_key)""",
    """CREATE TEMP TABLE duly_settling (
        id PRIMARY KEY, token, queue, tenant, task, run_at, attempt, hold, worker_id, started_at, finished_at, result,
        waited AS (started_at - run_at) STORED) WITHOUT ROWID""",
)
"""Tables of a connection, where a claim and a settle lay out their rows once; always empty between transactions."""


_Begun: TypeAlias = "tuple[Op[R], Call | CopyIn | Foreign]"


class _Pending(Generic[R]):
    """An operation that waits for the next commit of this process, worked out as far as its first statement."""

    __slots__ = ("begun", "done", "error", "op", "result", "stop")

    def __init__(self, op: Callable[[], Op[R]]) -> None:
        self.op = op
        self.begun: _Begun[R] | None = None
        self.done = False
        self.error: BaseException | None = None
        self.stop: BaseException | None = None
        """What was raised in its thread from outside while that ran the operation of another."""
        self.result: R | None = None
        steps = op()
        first = next(steps, None)
        if first is not None:  # it may want no statement, only that there is a database
            self.begun = steps, first

    def taken(self) -> _Begun[R] | None:
        """What is worked out, for one try: the next begins anew."""
        begun, self.begun = self.begun, None
        return begun


class SqliteDatabase:
    """An SQLite file (or, through the same DB-API seam, a libSQL one)."""

    dialect = Dialect.SQLITE
    copies = False

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        synchronous: str = "full",
        allow_network_disk: bool = False,
        busy_seconds: float = BUSY_SECONDS,
        connect: Callable[[str], sqlite3.Connection] | None = None,
    ) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._synchronous = synchronous
        self._allow_network_disk = allow_network_disk
        self._connect_with = connect or _stdlib_connect
        self._compiled = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False)
        self._abandoned: list[object] = []
        self._calls = Tally()
        self._held_for_fork = False
        self._taints = False
        """Whether a child that is forked now inherits what SQLite knows of open connections."""
        self._tainted = False
        """Whether this process has."""
        self._reset()
        forks.watch(self)

    # -- the life of connections ------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._leader = threading.Lock()
        self._pending: deque[_Pending[object]] = deque()
        self._writer: sqlite3.Connection | None = None
        self._readers = Readers(lambda: self._open(writer=False))
        self._lock_file = LockFile(self.path.with_name(self.path.name + "-duly.lock"))
        self._checked = False
        self._unbroken_since = time.monotonic()
        self._next_checkpoint = 0.0

    def _check_fork(self) -> None:
        """In a forked child drop what the parent has not closed, without closing it: that could harm the parent's."""
        if self._pid != os.getpid():
            self._abandoned += [self._writer, self._readers, self._lock_file]
            self._tainted, self._taints = self._tainted or self._taints, False
            self._reset()

    def before_fork(self, until: float) -> None:
        """Close every connection: a child must not inherit what SQLite knows of them (`forks`)."""
        if self._pid != os.getpid():
            return  # nothing was opened since the last fork
        self._held_for_fork = self._leader.acquire(timeout=max(0.0, until - time.monotonic()))
        self._taints = not (self._readers.hold(until) and self._held_for_fork)
        if self._held_for_fork and self._writer is not None:
            self._writer.close()
            self._writer = None

    def after_fork(self) -> None:
        """Let others go on, in the parent."""
        if self._pid != os.getpid():
            return
        self._taints = False
        self._readers.let_go()
        if self._held_for_fork:
            self._leader.release()

    def _check_writable(self) -> None:
        """Write nothing in a child that was forked while the file was in use: what it writes could be lost."""
        if self._tainted:
            raise DatabaseUnavailable(
                f"{self.path} was in use when this process was forked, and SQLite's locks do not survive that. "
                "Fork while no other thread uses it, or start a fresh process (multiprocessing's spawn)"
            )

    def _open(self, *, writer: bool) -> sqlite3.Connection:
        connection = None
        try:
            connection = self._connect_with(str(self.path))
            self._wait_at_most(connection, self._busy_seconds)
            if writer:
                self._set_wal(connection)
                connection.execute(f"PRAGMA synchronous={self._synchronous.upper()}")
                connection.execute("PRAGMA wal_autocheckpoint=0")
                connection.execute(f"PRAGMA journal_size_limit={RESET_BYTES}")
            else:
                connection.execute("PRAGMA query_only=1")
            connection.execute("PRAGMA temp_store=MEMORY")
            if writer:
                for table in DESKS:
                    connection.execute(table)
        except Exception as error:
            if connection is not None:
                connection.close()
            raise self._explained(error) from error
        return connection

    @staticmethod
    def _wait_at_most(connection: sqlite3.Connection, seconds: float) -> None:
        connection.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}").fetchall()

    def _set_wal(self, connection: sqlite3.Connection) -> None:
        mode = str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]).lower()
        if mode != "wal":
            raise UnsupportedDatabase(
                f"SQLite file {self.path} stays in journal mode {mode!r} and cannot use WAL. "
                "Put the database on a local disk that allows shared memory"
            )

    def _check_disk(self) -> None:
        """Refuse an SQLite, a folder or a disk that will not do, before anything is written there."""
        if sqlite3.sqlite_version_info < (3, 35):
            raise UnsupportedDatabase(
                f"SQLite {sqlite3.sqlite_version} is too old: duly needs 3.35 or newer. "
                "Use a Python built with a newer SQLite, or PostgreSQL"
            )
        folder = self.path.parent
        if not folder.is_dir():
            raise DatabaseUnavailable(f"cannot open {self.path}: the folder {folder} does not exist. Create it first")
        if not self._allow_network_disk and filesystem.is_network(folder):
            raise UnsupportedDatabase(
                f"{self.path} is on a network disk ({filesystem.kind_of(folder)}), where SQLite's WAL is not safe. "
                "Use a local disk or PostgreSQL, or set allow_network_disk if only one host ever opens it"
            )

    def _check_tables(self) -> None:
        """Check that the tables fit this code; make them if there are none."""
        assert self._writer is not None
        if read_version(self._writer) is None:
            self._migrate_locked()
        migrate.check_version(read_version(self._writer), Dialect.SQLITE, f"sqlite:///{self.path}")
        self._checked = True

    def _check_tables_by_reading(self) -> None:
        """See whether the tables fit as they are, behind whoever writes. What is to be made or told is for a writer."""
        self._check_disk()
        if not self.path.exists():  # to read it would make an empty one
            return
        connection = self._open(writer=False)
        try:
            fits = migrate.fits(read_version(connection), Dialect.SQLITE)
        except sqlite3.Error:
            fits = False
        if not fits:
            connection.close()
            return
        self._readers.add(connection)
        self._checked = True

    @property
    def lock_path(self) -> Path:
        """The lock file."""
        return self._lock_file.path

    def schema_version(self) -> SchemaVersion | None:
        """The version of the tables as they are, whether or not it fits; None if there are none. Makes nothing."""
        self._check_fork()
        self._check_disk()
        if not self.path.exists():
            raise DatabaseUnavailable(f"there is no database {self.path}. Check the path, or make it: duly migrate")
        connection = self._open(writer=False)
        try:
            return read_version(connection)
        except Exception as error:
            raise self._explained(error) from error
        finally:
            connection.close()

    def migrate(self) -> list[int]:
        """Bring the tables up to this version, step by step: between two steps others write. Returns those applied."""
        self._check_fork()
        self._check_writable()
        self._check_disk()
        applied, progress = list[int](), Progress()
        while True:
            begun = time.monotonic()
            with self._leader, self._lock_file.held(self._busy_seconds):
                if self._writer is None:
                    self._writer = self._open(writer=True)
                done = self._migrate_locked(progress)
            if done is None:
                return applied
            applied += done
            time.sleep(min(0.1, max(0.005, (time.monotonic() - begun) / 2)))

    def _migrate_locked(self, progress: Progress | None = None) -> list[int] | None:
        """Take one step of what is missing; new tables are made in one. Returns None when nothing is missing."""
        assert self._writer is not None
        try:
            done = migrate_some(self._writer, self._clock.now_us(), f"sqlite:///{self.path}", progress)
            if done is not None:
                self._checkpoint(self._writer)
            return done
        except Exception as error:
            self._roll_back()
            raise self._explained(error) from error

    # -- writing ----------------------------------------------------------------------------------------------

    def write(self, op: Callable[[], Op[R]], *, atomic: bool = True, again: bool = True) -> R:
        """Run an operation in the next commit of this process."""
        self._check_fork()
        self._check_writable()
        entry = _Pending(op)
        self._pending.append(entry)  # type: ignore[arg-type]
        return self._outcome(entry)

    def _outcome(self, entry: _Pending[R]) -> R:
        """Wait until an operation is done, by whoever leads, and say what came of it."""
        with self._leader:
            while not entry.done:
                self._commit_group(entry)
        if self._pending:
            time.sleep(HANDOVER)
        if entry.error is not None:
            raise entry.error
        return entry.result  # type: ignore[return-value]

    def _commit_group(self, mine: _Pending[R]) -> None:
        """As leader: commit what waits, together. More than one group may go before `mine`.

        At any step something may be raised in this thread from outside: the timeout of the handler it runs, Ctrl-C.
        That is for this thread alone. Others hear of it nothing: they are stored, or go into the next commit.
        """
        group: list[_Pending[object]] = []
        stored: list[object] = []
        try:
            self._gather(group, mine)
            alone = len(group) == 1 and group[0] is mine
            with self._writing() as connection:
                for entry in group:
                    self._run_entry(connection, entry, mine, alone=alone)
                stored.extend(map(connection.execute, _COMMIT))  # one step: nothing is raised between commit and note
                for entry in group:
                    entry.done = True
                self._checkpoint(connection)
        except BaseException as error:
            self._roll_back()  # unless that is done: it may have been what was cut short
            self._tell(group, mine, error, stored=bool(stored))
            if not _is_of_database(error):
                raise
        if mine.stop is not None:
            raise mine.stop

    def _gather(self, group: list[_Pending[object]], mine: _Pending[R]) -> None:
        """Take what waits. `mine` may be missing there: a leader that was cut short had taken it."""
        while self._pending and len(group) < GROUP:
            group.append(self._pending.popleft())
        if not self._pending and mine not in group:
            group.append(mine)  # type: ignore[arg-type]

    def _tell(self, group: list[_Pending[object]], mine: _Pending[R], error: BaseException, *, stored: bool) -> None:
        """Say to each of a group that was cut short how it stands. The database's trouble is everybody's."""
        if stored:
            for entry in group:
                entry.done = True
        elif isinstance(error, Exception) and _is_of_database(error):
            explained = self._explained(error)
            for entry in group:
                entry.error, entry.done = entry.error or explained, True
        else:
            self._pending.extendleft(entry for entry in reversed(group) if entry is not mine)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the lock file and a write transaction, rolled back unless it is committed inside."""
        asked = time.monotonic()
        try:
            if not self._checked:
                self._check_disk()
            with self._lock_file.held(self._busy_seconds):
                if self._writer is None:
                    self._writer = self._open(writer=True)
                if not self._checked:
                    self._check_tables()
                try:
                    self._writer.execute("BEGIN IMMEDIATE")
                    if time.monotonic() - asked > LONG_WAIT:
                        self._unbroken_since = time.monotonic()
                    yield self._writer
                finally:
                    self._roll_back()
        except (sqlite3.OperationalError, DatabaseUnavailable):
            self._unbroken_since = time.monotonic()
            raise

    def _run_entry(
        self, connection: sqlite3.Connection, entry: _Pending[object], mine: _Pending[R], *, alone: bool
    ) -> None:
        """Run an operation. What another's may not have raised itself is tried again: if it goes then, it was meant for
        this thread, which hears of it after the commit.
        """
        entry.error = None
        if alone:
            entry.result = self._drive(connection, entry.op, entry.taken())
            return
        stop: Exception | None = None
        connection.execute("SAVEPOINT duly_op")
        while True:
            try:
                entry.result = self._drive(connection, entry.op, entry.taken())
                mine.stop = mine.stop or stop
                break
            except Exception as error:
                if not connection.in_transaction or any(word in str(error) for word in _FULL):
                    raise  # not this operation's fault: the whole transaction is lost
                connection.execute("ROLLBACK TO duly_op")
                if entry is mine or stop is not None or _is_of_database(error):
                    entry.error = self._explained(error)
                    break
                stop = error
        connection.execute("RELEASE duly_op")

    def _roll_back(self) -> None:
        try:
            if self._writer is not None and self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error:  # the connection itself is broken: the next use opens another
            self._abandoned.append(self._writer)
            self._writer = None

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Keep the write-ahead log short. Under our lock file, so it never races another writer of ours.

        The file does not shrink when the log begins anew in it, so its size says only that there may be something to
        do: then at most every so often. The commit stands whatever happens here.
        """
        now = time.monotonic()
        if now < self._next_checkpoint:
            return
        try:
            size = os.stat(f"{self.path}-wal").st_size
            if size > RESET_BYTES:  # a reader was always in the way: wait for a moment without one
                self._wait_at_most(connection, 0.05)
                try:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    self._wait_at_most(connection, self._busy_seconds)
            elif size > CHECKPOINT_BYTES:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            else:
                return
        except (sqlite3.Error, OSError) as error:
            if not _is_of_database(error):
                raise
        self._next_checkpoint = now + CHECKPOINT_PAUSE

    # -- running ----------------------------------------------------------------------------------------------

    def _drive(self, connection: sqlite3.Connection, op: Callable[[], Op[R]], begun: _Begun[R] | None = None) -> R:
        now, lease_now = self._clock.now_us(), self._clock.lease_us()  # one instant for the whole operation
        steps, call = (op(), None) if begun is None else begun
        try:
            call = call or next(steps)
            while True:
                call = steps.send(self._execute(connection, call, now, lease_now))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    def _execute(self, connection: sqlite3.Connection, call: Call | CopyIn | Foreign, now: int, lease_now: int) -> Rows:
        if isinstance(call, Foreign):
            return self._execute_foreign(connection, call, now)
        assert isinstance(call, Call), "COPY is for PostgreSQL"
        sql, order = self._compiled.get(call.name)
        self._calls.add()
        given = call.params
        params = tuple([now if name == "now" else lease_now if name == "lease_now" else given[name] for name in order])
        rows: list[Row] = connection.execute(sql, params).fetchall()
        return rows

    def _execute_foreign(self, connection: sqlite3.Connection, call: Foreign, now: int) -> Rows:
        sql, order = self._compiled.foreign(call.sql)
        params = tuple([now if name == "now" else call.params[name] for name in order])
        try:
            rows: list[Row] = connection.execute(sql, params).fetchall()
        except Exception as error:
            kept = connection.in_transaction and not any(word in str(error) for word in _FULL)
            if call.caught and kept and not _is_from_outside(error):
                return [(FAILED, None, str(error))]
            raise
        return rows

    def read(self, op: Callable[[], Op[R]]) -> R:
        """Run an operation that changes nothing, on a connection that can change nothing."""
        self._check_fork()
        if not self._checked:
            self._check_tables_by_reading()
        if not self._checked:
            self.write(_nothing)
        try:
            with self._readers.one() as connection:
                return self._drive(connection, op)
        except Exception as error:
            raise self._explained(error) from error

    # -- the rest of the protocol -----------------------------------------------------------------------------

    @property
    def calls(self) -> int:
        """How many statements this process has run on it."""
        return self._calls.n

    @property
    def clock(self) -> Clock:
        """Where the time comes from."""
        return self._clock

    def reserved(self, purpose: str, *, patience: float | None = None) -> SqliteDatabase:
        """All use one writer: there is nothing to reserve."""
        return self

    def release(self) -> None:
        """There was nothing to reserve."""

    def unbroken_us(self, tolerated_us: int = 0) -> int:
        """How long writes have gone through without an error or a long wait, in microseconds.

        However short: what keeps one from writing keeps all from it, and nobody knows for how long.
        """
        return int((time.monotonic() - self._unbroken_since) * 1_000_000)

    def waker(self, worker_id: str) -> SqliteWaker:
        """A socket beside the file, and a look at the file's version for writers that do not poke."""
        self.read(_nothing)
        return SqliteWaker(self.path, worker_id, lambda: self._open(writer=False))

    def notice(self, hint: Hint) -> tuple[str | None, str]:
        """SQLite's workers are woken by `poke`."""
        return None, ""

    def poke(self, hint: Hint, addresses: Sequence[str] | None = None) -> None:
        """Wake sleeping workers of other processes, by the sockets they wrote down."""
        try:
            poke_sockets(self.read(ops_workers.wake_addresses) if addresses is None else addresses, hint)
        except DulyError:
            return

    def close(self) -> None:
        """Close every connection."""
        if self._pid != os.getpid():
            return
        with self._leader:
            self._readers.close()
            if self._writer is not None:
                self._writer.close()
            self._writer = None
            self._lock_file.close()

    def _explained(self, error: Exception) -> Exception:
        """Say what went wrong with the file, and what to do. Errors that are not the database's stay what they are."""
        if not isinstance(error, sqlite3.Error | OSError) or not _is_of_database(error):
            return error
        text = str(error)
        if "no such" in text or "has no column" in text:
            self._checked = False  # it may be migrated past us: the next operation looks
        if "locked" in text or "busy" in text:
            return DatabaseUnavailable(
                f"{self.path} has been locked by another program for {self._busy_seconds:.0f} s. "
                "Look for a transaction left open (for example in a database browser) and end it"
            )
        if "readonly" in text or "read-only" in text:
            return DatabaseUnavailable(
                f"{self.path} is read-only: {text}. Give this user the right to write it and its folder"
            )
        if "unable to open" in text or isinstance(error, OSError):
            return DatabaseUnavailable(f"cannot open {self.path}: {text}. Check the path and who may write there")
        if any(word in text for word in _FULL):
            return DatabaseUnavailable(
                f"cannot write {self.path}: {text}. Free some space; nothing that was committed is lost"
            )
        if "not a database" in text or "malformed" in text:
            return UnsupportedDatabase(f"{self.path} is not a sound SQLite database: {text}")
        return DatabaseError(f"SQLite refused an operation on {self.path}: {text}")


def _is_of_database(error: BaseException) -> bool:
    """Whether an error is known to come from the database or from us, and not from outside or the application."""
    return isinstance(error, sqlite3.Error | OSError | DulyError) and not _is_from_outside(error)


def _is_from_outside(error: BaseException) -> bool:
    """Whether an error is a timeout that was raised in this thread: it is an OSError, and none of the system's."""
    return type(error) is TimeoutError and error.errno is None


def _stdlib_connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _nothing() -> Op[None]:
    return
    yield
