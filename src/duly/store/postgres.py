"""PostgreSQL by psycopg: a few connections of our own, opened when needed, replaced when lost.

Each operation is one autocommit statement or one short transaction. Nothing rests on session state, so a pooler in
transaction mode may sit between; where one does, nothing is prepared: another client would find it on its connection.
"""

from __future__ import annotations

import math
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

from duly.domain.clock import Clock
from duly.domain.errors import ConfigurationError, DatabaseError, DatabaseUnavailable, DulyError
from duly.store import migrate
from duly.store.arrays import array_literal
from duly.store.call import FAILED, Call, CopyIn, Dialect, Foreign, Op, Rows, Value, rows_of
from duly.store.connections import Connections
from duly.store.contact import Contact
from duly.store.database import Hint
from duly.store.migrate import SchemaVersion
from duly.store.poker import Poker
from duly.store.postgres_migrate import PostgresMigration, read_version
from duly.store.postgres_wake import PostgresWaker, channel_of, payload_of
from duly.store.statements import CLOCKS, Compiled, check_schema
from duly.store.tally import Tally

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

R = TypeVar("R")
TRIES = 5
MAX_CONNECTIONS = 10
CONNECT: dict[str, int | str] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "duly",
}
ENCODING = {"client_encoding": "utf8"}
"""Whatever the server's, the address or the environment say: what goes by libpq itself is written so."""
SHORTEST_CONNECT = 2
"""What libpq makes of less."""
# Our tables change size by orders of magnitude within seconds, so statistics mislead: always probe the index.
# Read committed, whatever the server's default: a count after a lock must see what was committed while we waited.
PLANNER = (
    "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off "
    "-c default_transaction_isolation=read\\ committed"
)
_DIRECT = frozenset({"store_job", "any_idle", "notify", "lanes_and_suspects", "settle", "settle_plain",
                     "claim", "claim_lane", "claim_shares", "claim_gated", "claim_gated_lane"})  # fmt: skip
"""What workers and enqueuers do all the time: by libpq itself (docs/decisions/0033-one-wait-per-statement.md)."""
_AGAIN = {"40001", "40P01", "55P03"}
_ALREADY_THERE = "23505"
_NOT_SUPPORTED = "0A000"
_NO_PREPARED = {"26000", "42P05", "08P01"}
_LOST = ("08", "57P")
_NOT_THERE = {"42P01", "3F000", "42703", "42883"}  # a table, schema, column or function


class PostgresDatabase:
    """A PostgreSQL database that any number of machines share."""

    dialect = Dialect.POSTGRES

    def __init__(
        self, url: str, clock: Clock, *, schema: str = "duly", notify: bool = True, size: int = MAX_CONNECTIONS
    ) -> None:
        self.url = url
        self.schema = check_schema(schema)
        self._clock = clock
        self._notify = notify
        self._size = size
        self._compiled = Compiled(Dialect.POSTGRES, "pyformat", schema, server_clock=not clock.manual)
        self._direct = Compiled(Dialect.POSTGRES, "dollar", schema, server_clock=not clock.manual)
        self._prepare: int | None = 0
        self.copies = True
        self._pooled: bool | None = None
        self._options = PLANNER
        self._timeouts: dict[str, int | str] = dict(CONNECT)
        self._abandoned: list[object] = []
        self._children: list[PostgresDatabase] = []
        self._parent: PostgresDatabase | None = None
        self._calls = Tally()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._connections = Connections(self.connect, self._size)
        self._checked = False
        self._contact = Contact()
        self._poker = Poker(self._send)

    def _check_fork(self) -> None:
        """In a forked child drop what the parent opened, without closing: the sockets are the parent's."""
        if self._pid != os.getpid():
            self._abandoned.append(self._connections)
            self._reset()

    # -- connections ------------------------------------------------------------------------------------------

    def connect(self) -> psycopg.Connection:
        """Open a connection of our own."""
        psycopg = _import_psycopg()
        from psycopg.types.string import TextLoader

        try:
            given = psycopg.conninfo.conninfo_to_dict(self.url)  # what the address says goes before what we would
            ours = {name: value for name, value in self._timeouts.items() if name not in given}
            theirs = str(given.get("options") or os.environ.get("PGOPTIONS", ""))
            try:
                options = f"{theirs} {self._options}".strip()
                connection = psycopg.connect(self.url, autocommit=True, options=options, **ours, **ENCODING)
            except psycopg.OperationalError as error:
                if "startup parameter" not in str(error):
                    raise
                self._options = ""  # a pooler that takes no options
                connection = psycopg.connect(self.url, autocommit=True, **ours, **ENCODING)
        except (psycopg.Error, UnicodeError, ValueError) as error:
            raise DatabaseUnavailable(
                f"cannot connect to {self.safe_url}: {_first_line(error)}. {_advice(error)}"
            ) from error
        if self._pooled is None and (pooled := _is_pooled(connection)) is not None:
            self._pooled, self._prepare = pooled, None if pooled else self._prepare
        connection.prepare_threshold = self._prepare
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        for name in ("uuid", "json"):
            connection.adapters.register_loader(name, TextLoader)
        return cast("Connection[tuple[Any, ...]]", connection)

    @property
    def safe_url(self) -> str:
        """The address without its password, to show to people."""
        url = re.sub(r"(?<=[?&])password=[^&]*", "password=***", self.url)
        parts = urlsplit(url)
        if parts.password is None:
            return url
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{host}"))

    def _take(self) -> psycopg.Connection:
        self._check_fork()
        return self._connections.take()

    def _check_schema(self, connection: psycopg.Connection) -> None:
        migrate.check_version(read_version(connection, self.schema), Dialect.POSTGRES, self.safe_url, self.schema)
        self._checked = True

    # -- running ----------------------------------------------------------------------------------------------

    def write(self, op: Callable[[], Op[R]], *, atomic: bool = True, again: bool = True) -> R:
        """Run an operation in a transaction of its own; again after a conflict, or a lost connection if it may be."""
        psycopg = _import_psycopg()
        tried, before = 0, None
        while True:
            tried += 1
            try:
                return self._run(op, atomic)
            except psycopg.Error as error:
                self._note(error)
                if not self._may_try_again(error, tried, again, before):
                    raise self._explain(error) from error
                before = error.sqlstate
            except DatabaseUnavailable:
                self._contact.failed()
                if not again or tried >= TRIES:
                    raise
            time.sleep(random.random() * min(0.05 * 2**tried, 1.0))

    def _run(self, op: Callable[[], Op[R]], atomic: bool) -> R:
        connection = self._take()
        try:
            if not (self._checked or (self._parent is not None and self._parent._checked)):
                self._check_schema(connection)
            if atomic:
                self._calls.add(2)  # BEGIN and COMMIT
                with connection.transaction():
                    result = self._drive(connection, op)
            else:
                result = self._drive(connection, op)
        except BaseException:
            self._connections.drop(connection)
            raise
        self._connections.give(connection)
        self._contact.answered()
        return result

    def _note(self, error: psycopg.Error) -> None:
        if isinstance(error, _import_psycopg().OperationalError):
            self._contact.failed()
            if error.sqlstate is None or error.sqlstate.startswith(_LOST):
                self._connections.close()  # what ended one has most likely ended all: else each costs a try
        if error.sqlstate in _NO_PREPARED and self._prepare is not None:
            self._prepare = None
        if error.sqlstate == _NOT_SUPPORTED and self.copies:
            self.copies = False  # row-level security holds for us: then there is no COPY, and inserts must do

    def _may_try_again(self, error: psycopg.Error, tried: int, again: bool, before: str | None) -> bool:
        if tried >= TRIES:
            return False
        if error.sqlstate == _ALREADY_THERE:
            # An earlier try, its connection lost, was still under way and has now been committed: the next one finds
            # its rows. Found once more they are somebody else's, or twice in one batch.
            return again and before != _ALREADY_THERE
        if error.sqlstate in _AGAIN or error.sqlstate in _NO_PREPARED or self._lost_copy(error, tried):
            return True
        return again and isinstance(error, _import_psycopg().OperationalError)

    def _lost_copy(self, error: psycopg.Error, tried: int) -> bool:
        return error.sqlstate == _NOT_SUPPORTED and tried == 1

    def read(self, op: Callable[[], Op[R]]) -> R:
        """Run an operation that changes nothing."""
        return self.write(op, atomic=False)

    def _drive(self, connection: psycopg.Connection, op: Callable[[], Op[R]]) -> R:
        steps = op()
        try:
            call = next(steps)
            while True:
                call = steps.send(self._execute(connection, call))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    def _execute(self, connection: psycopg.Connection, call: Call | CopyIn | Foreign) -> Rows:
        self._calls.add()
        if isinstance(call, CopyIn):
            return self._copy(connection, call)
        if isinstance(call, Foreign):
            return self._execute_foreign(connection, call)
        if call.name in _DIRECT:
            return self._execute_directly(connection, call)
        sql, order = self._compiled.get(call.name)
        given = call.params
        params = {name: given[name] for name in order if name not in CLOCKS}
        for name, value in params.items():
            if type(value) is list:
                params[name] = array_literal(value)
        if len(params) < len(order):
            params |= self._moved_clock()
        cursor = connection.execute(sql, params)
        return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else ()

    def _execute_foreign(self, connection: psycopg.Connection, call: Foreign) -> Rows:
        sql, order = self._compiled.foreign(call.sql)
        params = {name: call.params[name] for name in order if name not in CLOCKS}
        if len(params) < len(order):
            params |= self._moved_clock()
        try:
            cursor = connection.execute(sql.encode(), params, prepare=False)
        except _import_psycopg().Error as error:
            lost = error.sqlstate is None or error.sqlstate.startswith(_LOST)
            if call.caught and not lost:
                return [(FAILED, error.sqlstate, _first_line(error))]
            raise
        return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else ()

    def _execute_directly(self, connection: psycopg.Connection, call: Call) -> Rows:
        """Run a statement by libpq itself, which waits once for the whole answer.

        psycopg waits for each part of it: every time this thread must get its turn again, beside handlers that do not
        let go of theirs.
        """
        sql, order = self._direct.get(call.name)
        given = call.params if not self._clock.manual else {**call.params, **self._moved_clock()}
        values = [None if (value := given[name]) is None else _as_sent(value) for name in order]
        libpq, name = connection.pgconn, call.name.encode()
        marks = connection.__dict__  # what was prepared goes with the connection
        if self._prepare is None:
            result = libpq.exec_params(sql.encode(), values)
        else:
            if call.name not in marks:
                _check_answer(libpq.prepare(name, sql.encode()))
                marks[call.name] = True
            result = libpq.exec_prepared(name, values)  # type: ignore[arg-type]  # None is NULL
        _check_answer(result)
        if not result.ntuples:
            return ()
        if (reader := marks.get("duly_reader")) is None:
            reader = marks["duly_reader"] = _import_psycopg().adapt.Transformer(connection)
        reader.set_pgresult(result)
        rows: Rows = reader.load_rows(0, result.ntuples, call.make or tuple)
        reader.set_pgresult(None)  # it would keep the whole answer until the next
        return rows

    def _moved_clock(self) -> dict[str, int]:
        """What a clock that is moved by hand says, instead of the server's."""
        return {"now": self._clock.now_us(), "lease_now": self._clock.lease_us()}

    def _copy(self, connection: psycopg.Connection, call: CopyIn) -> Rows:
        cursor = connection.cursor()
        with cursor.copy(f'COPY "{self.schema}".{call.table} ({call.columns}) FROM STDIN') as out:
            for block in call.blocks:
                out.write(block)
        return ()

    # -- the rest of the protocol -----------------------------------------------------------------------------

    @property
    def calls(self) -> int:
        """How many round trips this process has made to it."""
        return self._calls.n

    @property
    def clock(self) -> Clock:
        """Where the time comes from. The server's is used unless this one is moved by hand."""
        return self._clock

    @property
    def notifies(self) -> bool:
        """Whether workers listen, so that a NOTIFY makes sense."""
        return self._notify

    def reserved(self, purpose: str, *, patience: float | None = None) -> PostgresDatabase:
        """The same database by one connection that nobody else can take, given up after `patience` of silence."""
        child = PostgresDatabase(self.url, self._clock, schema=self.schema, notify=self._notify, size=1)
        child._checked, child._options = self._checked, self._options
        child._pooled, child._prepare, child.copies = self._pooled, self._prepare, self.copies
        child._parent, child._calls = self, self._calls
        if patience is not None:
            child._timeouts |= {
                "connect_timeout": max(SHORTEST_CONNECT, math.ceil(patience)),
                "tcp_user_timeout": max(1_000, int(patience * 1_000)),
            }
        self._children.append(child)
        return child

    def release(self) -> None:
        """Close a reserved connection."""
        if self._parent is not None:
            self.close()
            self._parent._children.remove(self)
            self._parent = None

    def unbroken_us(self, tolerated_us: int = 0) -> int:
        """How long it has answered us, in microseconds, but for breaks up to `tolerated_us`."""
        return self._contact.unbroken_us(tolerated_us)

    def waker(self, worker_id: str) -> PostgresWaker:
        """A connection that listens."""
        return PostgresWaker(self.connect, channel_of(self.schema), listen=self._notify)

    def notice(self, hint: Hint) -> tuple[str | None, str]:
        """The channel and payload of a NOTIFY that says `hint`."""
        return (channel_of(self.schema) if self._notify else None), payload_of(hint)

    def poke(self, hint: Hint, addresses: Sequence[str] | None = None) -> None:
        """Wake a worker that sleeps, if any does. After the commit, so that none that just fell asleep is missed."""
        if self._notify:
            self._check_fork()
            self._poker.poke(hint)

    def _send(self, hint: Hint) -> None:
        call = Call(
            "any_idle" if hint.kind in ("jobs", "room") else "notify",
            {"channel": channel_of(self.schema), "payload": payload_of(hint), "sender": hint.sender or None},
        )
        try:
            self.write(lambda: rows_of(call), atomic=False, again=False)
        except DulyError:
            return  # only a hint: the worker looks by itself

    @property
    def pooled(self) -> bool:
        """Whether a pooler is between, as far as was seen when connecting."""
        return bool(self._pooled)

    def schema_version(self) -> SchemaVersion | None:
        """The version of the tables as they are, whether or not it fits; None if there are none."""
        try:
            with self.connect() as connection:
                return read_version(connection, self.schema)
        except _import_psycopg().Error as error:
            raise self._explain(error) from error

    def migrate(self) -> list[int]:
        """Bring the tables up to this version, alone: other migrations wait. Returns the versions applied."""
        try:
            return PostgresMigration(self.connect, self.schema, self.safe_url).run()
        except _import_psycopg().Error as error:
            raise self._explain(error) from error

    def close(self) -> None:
        """Close every connection."""
        if self._pid != os.getpid():
            return
        self._poker.close()
        for child in self._children:
            child.close()
        self._connections.close()

    def _explain(self, error: psycopg.Error) -> DulyError:
        psycopg = _import_psycopg()
        if error.sqlstate in _NOT_THERE:
            for database in filter(None, (self, self._parent)):  # it may be migrated past us: the next operation looks
                database._checked = False
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return DatabaseError(f"{self.safe_url}: {_first_line(error)}. Run: duly migrate --url {self.safe_url}")
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return DatabaseUnavailable(
                f"{self.safe_url} is read-only (a standby?): {_first_line(error)}. Connect to the primary"
            )
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return DatabaseError(
                f"{self.safe_url}: {_first_line(error)}. Grant this user the rights to schema {self.schema}"
            )
        if error.sqlstate in _AGAIN:
            return DatabaseUnavailable(
                f"other transactions stood in the way of an operation on {self.safe_url}, also when it was repeated: "
                f"{_first_line(error)} ({error.sqlstate}). Look for one that locks schema {self.schema} for long"
            )
        if isinstance(error, psycopg.OperationalError):
            if error.sqlstate is None or error.sqlstate.startswith(_LOST):
                return DatabaseUnavailable(f"lost {self.safe_url}: {_first_line(error)}")
            return DatabaseUnavailable(
                f"{self.safe_url} did not carry out an operation: {_first_line(error)} ({error.sqlstate})"
            )
        return DatabaseError(f"PostgreSQL refused an operation: {_first_line(error)} ({error.sqlstate})")


def _is_pooled(connection: psycopg.Connection) -> bool | None:
    """Whether a pooler is between: then not the process that greeted us answers. None if none does."""
    result = connection.pgconn.exec_(b"SELECT pg_backend_pid()")
    answer = result.get_value(0, 0) if result.status == 2 else None  # TUPLES_OK
    return None if answer is None else int(answer) != connection.pgconn.backend_pid


def _as_sent(value: Value) -> bytes:
    text = (array_literal(value) if type(value) is list else str(value)).encode()
    if b"\0" in text:  # libpq would take it for the end
        raise _import_psycopg().DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text


def _check_answer(result: PGresult) -> None:
    if result.status not in (1, 2):  # COMMAND_OK, TUPLES_OK
        psycopg = _import_psycopg()
        error = psycopg.errors.error_from_result(result)
        if error.sqlstate is None:  # not the server's word: the connection is lost
            raise psycopg.OperationalError(str(error))
        raise error


def _advice(error: BaseException) -> str:
    """What to do about a refused connection. libpq has no code for it, only what the server says."""
    if any(each in str(error) for each in ("too many clients", "connection slots", "too many connections")):
        return (
            "All its connections are in use: raise max_connections, run fewer workers (each needs about 5), "
            "or put PgBouncer between"
        )
    return "Check the address and that the server is running"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _import_psycopg() -> ModuleType:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigurationError("PostgreSQL needs psycopg. Run: pip install 'duly[postgres]'") from error
    return psycopg
