"""Guards in how the databases are driven: one writer at a time on SQLite, one who migrates, one order of locks."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Code

SQLITE = "duly.store.sqlite:SqliteDatabase"
POSTGRES = "duly.store.postgres:PostgresDatabase"
FOREIGN = "duly.store.foreign_steps"

DRIVERS = (
    Guard(
        name="SQLite: BEGIN IMMEDIATE around every operation",
        protects="F38 P14",
        without="an operation that looks first and writes then is refused when another program has written between",
        edits=(Code(f"{SQLITE}._writing", '"BEGIN IMMEDIATE"', '"BEGIN"'),),
    ),
    Guard(
        name="SQLite: BEGIN IMMEDIATE around a migration",
        protects="F21 F38",
        without="a migration is refused when another program writes meanwhile",
        edits=(Code("duly.store.sqlite_migrate:migrate_some", '"BEGIN IMMEDIATE"', '"BEGIN"'),),
    ),
    Guard(
        name="SQLite: BEGIN IMMEDIATE on a caller's connection",
        protects="F38 P14",
        without="an enqueue on a caller's connection is refused when another has written since its first look",
        edits=(Code(f"{FOREIGN}:_bracket", '"BEGIN IMMEDIATE" if', '"BEGIN" if'),),
    ),
    Guard(
        name="SQLite: the write lock in a caller's transaction",
        protects="F38 P14",
        without="an enqueue in a caller's transaction looks first, and another writes between",
        edits=(
            Code(
                f"{FOREIGN}:_all_or_nothing",
                '            yield words.step(Call("lock_to_write"))\n',
                "            pass\n",
            ),
        ),
    ),
    Guard(
        name="SQLite: the lock file",
        protects="F38 F40",
        without="processes sleep in SQLite's busy handler, and a checkpoint races a writer",
        edits=(
            Code(
                "duly.store.lockfile:LockFile._acquire", "fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"
            ),
        ),
    ),
    Guard(
        name="SQLite: a savepoint for each operation",
        protects="F38 I1",
        without="an operation that fails half-way is committed half with those of others",
        edits=(
            Code(
                f"{SQLITE}._run_entry", '            connection.execute("ROLLBACK TO duly_op")\n', "            pass\n"
            ),
        ),
    ),
    Guard(
        name="SQLite: a fork drops what the parent opened",
        protects="F43 P14",
        without="a forked child uses the parent's connection, and harms its file",
        edits=(Code(f"{SQLITE}._check_fork", "if self._pid != os.getpid():", "if False:"),),
    ),
    Guard(
        name="SQLite: commits are written through",
        protects="F39 P14",
        without="a job whose enqueue returned is lost in a power cut",
        edits=(
            Code(f"{SQLITE}._open", 'f"PRAGMA synchronous={self._synchronous.upper()}"', '"PRAGMA synchronous=OFF"'),
        ),
    ),
    Guard(
        name="SQLite: not on a network disk",
        protects="F42 P14",
        without="a file on a network disk is corrupted",
        edits=(
            Code(
                f"{SQLITE}._check_disk",
                "if not self._allow_network_disk and filesystem.is_network(folder):",
                "if False:",
            ),
        ),
    ),
    Guard(
        name="PostgreSQL: a fork drops what the parent opened",
        protects="F43",
        without="a forked child speaks on the parent's connections",
        edits=(Code(f"{POSTGRES}._check_fork", "if self._pid != os.getpid():", "if False:"),),
    ),
    Guard(
        name="PostgreSQL: the lock of a migration",
        protects="F21 P16",
        without="two who migrate at once both make the tables, and one fails",
        edits=(
            Code(
                "duly.store.postgres_migrate:PostgresMigration._turn",
                "SELECT pg_try_advisory_xact_lock(hashtext(%s))",
                "SELECT hashtext(%s) IS NOT NULL",
            ),
        ),
    ),
    Guard(
        name="PostgreSQL: read committed",
        protects="F28 I9",
        without="where the server's default is another, a count after a lock does not see what was committed meanwhile",
        edits=(
            Code(
                f"{POSTGRES}.connect",
                'f"{theirs} {self._options}".strip()',
                'f"{theirs} {self._options}".strip().replace("read\\\\ committed", "repeatable\\\\ read")',
            ),
        ),
    ),
    Guard(
        name="PostgreSQL: a claim is not repeated blindly",
        protects="F4",
        without="a claim whose reply was lost is repeated, and the first one's jobs are known to nobody",
        edits=(Code("duly.store.store:Store.claim", "again=False", "again=True"),),
    ),
    Guard(
        name="settle: in one order",
        protects="F20",
        without="two who end the same runs deadlock",
        edits=(
            Code(
                "duly.store.ops_settle:_settle_postgres",
                "if ids != sorted(ids):\n        places = sorted(range(len(ids)), key=ids.__getitem__)",
                "places = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)",
            ),
        ),
    ),
)
