"""PgBouncer in front of a test's PostgreSQL, behind a Unix socket of its own, gone with the session."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests import postgres

PORT = 6432
START_SECONDS = 20.0
SETTINGS = """
[databases]
* = host={server} user={user}

[pgbouncer]
unix_socket_dir = {directory}
listen_addr =
listen_port = {port}
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
"""


def program() -> str | None:
    """Where PgBouncer is installed; None if it is not."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


class Pooler:
    """A pooler in front of the server at an address, to stop and start as often as a test wants."""

    def __init__(self, url: str, mode: str, size: int) -> None:
        parts = urlsplit(url)
        server = parse_qs(parts.query)["host"][0]
        self.directory = Path(tempfile.mkdtemp(prefix="duly-pgb-", dir=postgres.short_temporary_directory()))
        self._settings = self.directory / "pgbouncer.ini"
        names = {"server": server, "user": postgres.SUPERUSER, "directory": self.directory, "port": PORT}
        self._settings.write_text(SETTINGS.format(mode=mode, size=size, **names))
        self._user = postgres.server_user()
        if self._user is not None:
            shutil.chown(self.directory, self._user)
            shutil.chown(self._settings, self._user)
        self.url = f"postgresql://{postgres.SUPERUSER}@{parts.path}?host={self.directory}&port={PORT}"
        """The address of the same database through it."""
        self._guard: subprocess.Popen[str] | None = None
        self._pid = 0

    def start(self) -> None:
        """Start it and wait until it answers."""
        guard = subprocess.Popen(
            [sys.executable, postgres.__file__, str(self.directory), self._user or "", str(program()),
             str(self._settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )  # fmt: skip
        assert guard.stdout is not None
        self._guard, self._pid = guard, int(guard.stdout.readline())
        wait_for(self.directory / f".s.PGSQL.{PORT}", self.directory / "log")

    def stop(self) -> None:
        """Stop it at once: connections through it are cut."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        os.kill(self._pid, signal.SIGQUIT)
        guard.wait(postgres.STOP_SECONDS)
        for pipe in (guard.stdin, guard.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def restartable(url: str, mode: str, size: int) -> Iterator[Pooler]:
    """Run a pooler in front of the server at `url`."""
    made = Pooler(url, mode, size)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(made.directory, ignore_errors=True)


@contextmanager
def pooler(url: str, mode: str, size: int) -> Iterator[str]:
    """Run a pooler in front of the server at `url`; yield the address of the same database through it."""
    with restartable(url, mode, size) as made:
        yield made.url


def wait_for(path: Path, log: Path) -> None:
    """Return when something answers at a Unix socket."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
                return
            except OSError:
                pass
        if time.monotonic() > deadline:
            raise RuntimeError(f"pgbouncer did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.02)
