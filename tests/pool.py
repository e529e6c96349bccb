"""The databases of one PostgreSQL server: each test gets one, cleaned after another test or made for it.

To clean a database takes a fraction of the time of making one. It goes back only if it is as new again; what a test
may leave behind, and what becomes of it:

- rows, statistics, numbers drawn from sequences: they are removed, reset, set back;
- anything in the system catalogues (a table, a column, a function, a right, a comment, a setting of the database...)
  or in a table that the migrations fill: the database is dropped, and another made when there is need;
- sessions, and with them LISTEN, advisory locks, prepared statements and temporary tables: the test fails, for
  its connections are its own to close, and the database is dropped;
- what belongs to the whole server (a role, ALTER SYSTEM, a replication slot...): the test fails.

No name is used twice, so a process that a test forgot does not find its way into the database of another test.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import LiteralString, NamedTuple

import psycopg
from psycopg import sql

from tests.postgres import PostgresServer

LEAK_SECONDS = 2.0
TEMPLATE = "duly_template"
FIRST_OF_OURS = 16384  # what is made after initdb has no smaller oid

OF_THE_DATABASE = """
    SELECT concat_ws(' ', this.xmin, pg_stat_get_db_stat_reset_time(this.oid),
        (SELECT count(*) FROM pg_db_role_setting WHERE setdatabase = this.oid),
        (SELECT count(*) FROM pg_shdescription WHERE classoid = 'pg_database'::regclass AND objoid = this.oid))
    FROM pg_database this WHERE datname = %s
"""
WRITES = """
    SELECT sum(pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid))
    FROM pg_class WHERE relkind = 'r' AND NOT relisshared AND (oid < %s OR oid = ANY(%s))
"""
RELATIONS = """
    SELECT c.oid, nspname, relname, relkind::text, relkind = 'r' AND pg_relation_size(c.oid) > 0, relpages, reltuples
    FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid >= %s ORDER BY c.oid
"""
FORGET_STATISTICS = """
    UPDATE pg_class SET relpages = new.pages, reltuples = new.rows
    FROM (SELECT unnest(%s::oid[]) AS oid, unnest(%s::integer[]) AS pages, unnest(%s::real[]) AS rows) new
    WHERE pg_class.oid = new.oid AND (relpages, reltuples) <> (new.pages, new.rows)
"""
OF_THE_SERVER = """
    SELECT 'role ' || rolname || ' ' || xmin FROM pg_authid
    UNION ALL SELECT 'membership ' || member::regrole || ' in ' || roleid::regrole || ' ' || xmin FROM pg_auth_members
    UNION ALL SELECT 'setting ' || setconfig::text || ' of role ' || setrole::regrole
              FROM pg_db_role_setting WHERE setdatabase = 0
    UNION ALL SELECT 'setting ' || name || ' = ' || coalesce(setting, '')
              FROM pg_file_settings WHERE sourcefile LIKE '%/postgresql.auto.conf'
    UNION ALL SELECT 'right to set ' || parname || ' ' || xmin FROM pg_parameter_acl
    UNION ALL SELECT 'tablespace ' || spcname || ' ' || xmin FROM pg_tablespace
    UNION ALL SELECT 'comment ' || description || ' ' || xmin
              FROM pg_shdescription WHERE classoid <> 'pg_database'::regclass
    UNION ALL SELECT 'slot ' || slot_name FROM pg_replication_slots
    UNION ALL SELECT 'origin ' || roname FROM pg_replication_origin
    UNION ALL SELECT 'subscription ' || subname FROM pg_subscription
    UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts
"""
CONNECTED = """
    SELECT coalesce(nullif(application_name, ''), 'pid ' || pid) || ': ' || left(query, 200)
    FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'
"""


class Database(NamedTuple):
    """A database, and what says that nobody has changed its settings or reset its statistics since it was new."""

    name: str
    state: object


class Relation(NamedTuple):
    """A table, index, view or sequence; of a table, whether it has rows; what the planner believes."""

    oid: int
    schema: str
    name: str
    kind: str
    filled: bool
    pages: int
    rows: float

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


class PostgresDatabases:
    """The databases of one server, with a template that `prepare` migrates once."""

    def __init__(self, server: PostgresServer, prepare: Callable[[str], None]) -> None:
        self.server = server
        self._prepare = prepare
        self._admin = psycopg.connect(server.url(), autocommit=True)
        self._numbers = itertools.count(1)
        self._free: deque[Database] = deque()
        self._cleaner: Cleaner | None = None
        self._of_the_server = set(map(str, self._ask(OF_THE_SERVER)))

    @contextmanager
    def fresh(self, *, prepared: bool) -> Iterator[str]:
        """Yield the URL of a database: migrated, or without any table."""
        self._connect()
        database = self._take() if prepared else self._make("template1")
        passed = False
        try:
            yield self.server.url(database.name)
            passed = True
        finally:
            self._connect()
            leaked = self._lingering_connections(database.name) if passed else []
            if prepared and passed and not leaked:
                self._give_back(database)
            else:
                self._drop(database.name)
            left = self._left_on_the_server()
        if leaked:
            raise AssertionError("connections were left open; their last statements: " + "; ".join(leaked))
        if left and passed:
            raise AssertionError("the server is not as the test found it: " + "; ".join(left))

    def close(self) -> None:
        """End the session's own connection, and the server."""
        self._admin.close()
        self.server.remove()

    def _take(self) -> Database:
        if self._cleaner is None:
            self._make_template()
        if not self._free:
            return self._make(TEMPLATE)
        database = self._free.popleft()
        busy = self._lingering_connections(database.name)
        assert not busy, f"somebody is connected to {database.name}, which no test has: {busy}"
        return database

    def _make_template(self) -> None:
        self._execute("CREATE DATABASE {}", TEMPLATE)
        url = self.server.url(TEMPLATE)
        self._prepare(url)
        self._cleaner = Cleaner(url)
        self._execute("ALTER DATABASE {} ALLOW_CONNECTIONS false", TEMPLATE)

    def _make(self, template: str) -> Database:
        name = self._new_name()
        self._execute("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, template)
        return self._as_it_is(name)

    def _give_back(self, used: Database) -> None:
        assert self._cleaner is not None
        if self._as_it_is(used.name) == used:
            name = self._new_name()
            self._execute("ALTER DATABASE {} RENAME TO {}", used.name, name)
            if self._cleaner.clean(self.server.url(name)):
                self._free.append(self._as_it_is(name))
            else:
                self._drop(name)
        else:
            self._drop(used.name)

    def _as_it_is(self, name: str) -> Database:
        return Database(name, self._ask(OF_THE_DATABASE, name)[0])

    def _drop(self, name: str) -> None:
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _lingering_connections(self, name: str) -> list[str]:
        """Return the last statement of each client still connected after a moment's grace."""
        deadline = time.monotonic() + LEAK_SECONDS
        while (found := self._ask(CONNECTED, name)) and time.monotonic() < deadline:
            time.sleep(0.002)
        return [str(each) for each in found]

    def _left_on_the_server(self) -> list[str]:
        """Return what has changed for all databases of the server; each change is told once."""
        found = set(map(str, self._ask(OF_THE_SERVER)))
        changed = found ^ self._of_the_server
        self._of_the_server = found
        return sorted(changed)

    def _new_name(self) -> str:
        return f"duly_{next(self._numbers)}"

    def _ask(self, query: LiteralString, *values: str) -> list[object]:
        """Return the first column of the answer."""
        return [row[0] for row in self._admin.execute(query, values or None).fetchall()]

    def _execute(self, statement: LiteralString, *names: str) -> None:
        self._admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _connect(self) -> None:
        """Have a connection that lasts; if a test has ended it, another."""
        with suppress(psycopg.OperationalError):
            self._admin.execute("")
            return
        self._admin = psycopg.connect(self.server.url(), autocommit=True)


class Cleaner:
    """Makes databases as new as the one that it has seen first."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            self._relations = relations(connection)
            self._kept = [each.oid for each in self._relations if each.filled]
            self._sequences = [
                sql.SQL("SELECT setval({}::oid::regclass, {}, {})").format(each.oid, *state)
                for each in self._relations
                if each.kind == "S"
                for state in connection.execute(sql.SQL("SELECT last_value, is_called FROM {}").format(each.identifier))
            ]

    def clean(self, url: str) -> bool:
        """Make the database as new, or say that it cannot be done."""
        with psycopg.connect(url, autocommit=True, options="-c allow_system_table_mods=on") as connection:
            # A session reports what it wrote before it ends, and the sessions of the test have ended.
            if connection.execute(WRITES, [FIRST_OF_OURS, self._kept]).fetchall() != [(0,)]:
                return False
            pairs = zip(relations(connection), self._relations, strict=True)
            used = [each for each, new in pairs if each != new and each.kind == "r" and not new.filled]
            if used:
                names = sql.SQL(", ").join(each.identifier for each in used)
                connection.execute(sql.SQL("TRUNCATE {}").format(names))
                new = self._relations
                connection.execute(
                    FORGET_STATISTICS,
                    [[each.oid for each in new], [each.pages for each in new], [each.rows for each in new]],
                )
            restart = [*self._sequences, sql.SQL("SELECT pg_stat_force_next_flush()")]
            connection.execute(sql.SQL("; ").join(restart))
            connection.execute("SELECT pg_stat_reset()")
            return relations(connection) == self._relations


def relations(connection: psycopg.Connection) -> list[Relation]:
    """Return all that is not PostgreSQL's own."""
    return [Relation(*row) for row in connection.execute(RELATIONS, [FIRST_OF_OURS]).fetchall()]
