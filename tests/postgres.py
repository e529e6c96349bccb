"""A PostgreSQL server for tests: in a temporary directory, behind a Unix socket, gone with the session.

Its files are in memory where there is room: to copy a database of hundreds of small files takes a disk many times
as long. A crash of the server, which tests provoke, is the same there.

Each server runs under a guard, this same file started as a program. The guard holds one end of a pipe from
the test session; when the session ends in whatever way, SIGKILL included, the pipe closes, and the guard ends
the server and removes its files. Only the standard library is imported here: the guard starts quickly.
Which servers there are, and the databases in them, is the matter of `databases.py`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Literal

START_SECONDS = 60.0
STOP_SECONDS = 30.0
SUPERUSER = "postgres"
MEMORY = "/dev/shm"
ENOUGH_MEMORY = 4 << 30
SETTINGS = {
    # Durability is not under test here; a crash of the server alone, without the machine, loses nothing.
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "timezone": "UTC",
}
StopMode = Literal["fast", "immediate", "kill"]
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
    "kill": signal.SIGKILL,
}


class PostgresServer:
    """One server with its own data directory; `stop` and `start` it as often as a test wants outages."""

    def __init__(self, bin_dir: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="duly-pg-", dir=short_temporary_directory()))
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self.user = server_user()
        if self.user is not None:
            shutil.chown(self.directory, self.user)
        self.bin_dir = reachable(bin_dir, self.directory, self.user)
        self.settings: dict[str, str] = {}
        """What is to be different from `SETTINGS` from the next start on."""
        self._guard: subprocess.Popen[str] | None = None
        self._pid: int | None = None
        self._initialise()

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._pid is None:
            raise RuntimeError("the server is not running; call start()")
        return self._pid

    def url(self, database: str = SUPERUSER) -> str:
        """Return the address of one database, in the form that libpq, asyncpg and SQLAlchemy all read."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self.directory}"

    def start(self) -> None:
        """Start the server under a guard and wait until it accepts connections."""
        settings = SETTINGS | {"unix_socket_directories": str(self.directory)} | self.settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(self.bin_dir / "postgres"), "-D", str(self.data), *options]
        self._guard = subprocess.Popen(
            [sys.executable, __file__, str(self.directory), self.user or "", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C, or a kill of the session's process group, passes the guard by
        )
        assert self._guard.stdout is not None
        self._pid = int(self._guard.stdout.readline())
        self._wait_until_ready(self._guard)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data: `fast` in good order, `immediate` and `kill` as in a crash."""
        guard = self._guard
        if guard is None:
            return
        if guard.poll() is None:
            os.kill(self.pid, STOP_SIGNALS[mode])
            try:
                guard.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGQUIT)
                guard.wait(STOP_SECONDS)
        for pipe in (guard.stdin, guard.stdout):
            assert pipe is not None
            pipe.close()
        self._guard = self._pid = None

    def remove(self) -> None:
        """Stop the server, without ceremony, and remove its files."""
        self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def _initialise(self) -> None:
        # The locale C sorts text by bytes, as SQLite does.
        options = ["-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            [str(self.bin_dir / "initdb"), "-D", str(self.data), *options],
            cwd=self.directory,
            user=self.user,
            group=group_of(self.user),
            extra_groups=None if self.user is None else [],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise RuntimeError(f"{self.bin_dir}/initdb failed:\n{made.stdout}{made.stderr}")

    def _wait_until_ready(self, guard: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if guard.poll() is not None or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""
                raise RuntimeError(f"{self.bin_dir}/postgres did not start:\n{tail}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        """The postmaster writes its pid, and on line 8 its state, into this file, where pg_ctl looks too."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self._pid) and lines[7].strip() == "ready"


def short_temporary_directory() -> str | None:
    """Prefer memory, then /tmp: the path of a Unix socket may have only about a hundred characters."""
    return memory() or ("/tmp" if os.access("/tmp", os.W_OK) else None)


def memory() -> str | None:
    """Return a directory in memory, if this machine has one and it is large; $DULY_TEST_DISK=1 asks for the disk."""
    if os.environ.get("DULY_TEST_DISK") == "1" or not os.access(MEMORY, os.W_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= ENOUGH_MEMORY else None


def server_user() -> str | None:
    """Return whom the server must run as: PostgreSQL refuses root; None stands for ourselves."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    raise RuntimeError("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody' to run it")


def group_of(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def reachable(bin_dir: Path, directory: Path, user: str | None) -> Path:
    """Return `bin_dir`, or a copy of the installation if `user` may not enter it (a private home)."""
    if user is None:
        return bin_dir
    try:
        subprocess.run([bin_dir / "postgres", "--version"], cwd="/", user=user, stdout=subprocess.DEVNULL, check=True)
    except (PermissionError, subprocess.CalledProcessError):
        return copied_installation(bin_dir, directory, user)
    return bin_dir


def copied_installation(bin_dir: Path, directory: Path, user: str) -> Path:
    """Copy the wheel's server and the libraries that it finds by relative path."""
    installation = bin_dir.parent
    package = installation.parent
    copy = directory / "site" / package.name / installation.name
    shutil.copytree(installation, copy, ignore=shutil.ignore_patterns("include"))
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, directory / "site" / libraries.name)
    for path in [directory / "site", *(directory / "site").rglob("*")]:
        shutil.chown(path, user)
    return copy / bin_dir.name


def guard(directory: Path, user: str | None, command: list[str]) -> None:
    """Run the server to its end; end it, and remove its files, when standard input closes."""
    with (directory / "log").open("ab") as log:
        server = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=user,
            group=group_of(user),
            extra_groups=None if user is None else [],
        )
    orphaned = threading.Event()

    def end_the_server() -> None:
        orphaned.set()
        server.send_signal(signal.SIGQUIT)

    def wait_for_the_session_to_end() -> None:
        os.read(sys.stdin.fileno(), 1)
        end_the_server()

    threading.Thread(target=wait_for_the_session_to_end, daemon=True).start()
    try:
        os.write(sys.stdout.fileno(), f"{server.pid}\n".encode())
    except BrokenPipeError:  # the session ended while we started
        end_the_server()
    server.wait()
    if orphaned.is_set():
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]), sys.argv[2] or None, sys.argv[3:])
