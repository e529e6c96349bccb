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


@contextmanager
def pooler(url: str, mode: str, size: int) -> Iterator[str]:
    """Run a pooler in front of the server at `url`; yield the address of the same database through it."""
    parts = urlsplit(url)
    server = parse_qs(parts.query)["host"][0]
    directory = Path(tempfile.mkdtemp(prefix="duly-pgb-", dir=postgres.short_temporary_directory()))
    settings = directory / "pgbouncer.ini"
    names = {"server": server, "user": postgres.SUPERUSER, "directory": directory, "port": PORT}
    settings.write_text(SETTINGS.format(mode=mode, size=size, **names))
    user = postgres.server_user()
    if user is not None:
        shutil.chown(directory, user)
        shutil.chown(settings, user)
    guard = subprocess.Popen(
        [sys.executable, postgres.__file__, str(directory), user or "", str(program()), str(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert guard.stdin is not None
    assert guard.stdout is not None
    pid = int(guard.stdout.readline())
    try:
        wait_for(directory / f".s.PGSQL.{PORT}", directory / "log")
        yield f"postgresql://{postgres.SUPERUSER}@{parts.path}?host={directory}&port={PORT}"
    finally:
        os.kill(pid, signal.SIGQUIT)
        guard.wait(postgres.STOP_SECONDS)
        guard.stdin.close()
        guard.stdout.close()
        shutil.rmtree(directory, ignore_errors=True)


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
