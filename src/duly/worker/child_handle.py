"""A child process as the worker sees it: started, spoken to, listened to, killed. One thread uses it.

Started afresh (as multiprocessing's "spawn" does), never forked: a fork of a process with threads inherits their locks
and open database connections. Not through multiprocessing itself: that pickles, keeps a second process to count
semaphores, and imports our `__main__` (a command line) into every child.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.spawn import get_executable
from typing import Any

DEAF_SECONDS = 1.0
LOOK_EVERY = 0.1
"""How often to look whether a child has ended, where the system cannot tell us."""

_BOOT = (
    "import json, socket, sys; "
    "channel = socket.socket(fileno=int(sys.argv[1])); "
    "hello = json.loads(channel.makefile('rb', buffering=0).readline()); "
    "sys.path[:], sys.argv[:] = hello['path'], hello['argv']; "
    "from duly.worker.child_main import main; main(channel, hello)"
)

Message = dict[str, Any]


class ChildHandle:
    """One child process. It leads a session of its own, so that no signal from a terminal reaches it."""

    def __init__(self, wake: socket.socket, *, max_result: int, clock_offset: int) -> None:
        self._wake = wake
        self._inbox = b""
        self._outbox = b""
        self._deaf_since: float | None = None
        self.ended = False
        """Whether it has ended and has no more to say."""
        self.killed = False
        """Whether we have killed it."""
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        try:
            with theirs:
                self._process = _started(theirs.fileno())
        except OSError:
            self._channel.close()
            raise
        self._pidfd = _open_pidfd(self._process.pid)
        hello = {
            "path": [each or os.getcwd() for each in sys.path],
            "argv": sys.argv,
            "parent": os.getpid(),
            "log_level": logging.getLogger().level,
            "max_result": max_result,
            "clock_offset": clock_offset,
        }
        self.send(hello)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """Send a message; what does not go at once goes while listening. Never waits."""
        self._outbox += json.dumps(message).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        try:
            self._outbox = self._outbox[self._channel.send(self._outbox) :]
        except BlockingIOError:
            pass
        except OSError:
            self._outbox = b""  # it has closed its end: listening will tell that it has ended

    def listen(self, seconds: float | None) -> list[Message]:
        """Wait up to `seconds` for messages, for its end, or to be woken."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._deaf_since is None:
            poll.register(self._channel, select.POLLIN | (select.POLLOUT if self._outbox else 0))
        if self._pidfd is not None:
            poll.register(self._pidfd, select.POLLIN)
        if self._pidfd is None or self._deaf_since is not None:
            seconds = LOOK_EVERY if seconds is None else min(seconds, LOOK_EVERY)
        poll.poll(None if seconds is None else max(0.0, seconds) * 1_000)
        _drain(self._wake)
        if self._outbox:
            self._write()
        return self._read()

    def _read(self) -> list[Message]:
        """Take what has come. Look whether it has ended first: then all that it ever said is here."""
        ended = self.look()
        data, deaf = _drain(self._channel)
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        if deaf and not ended:
            self._end_if_deaf()
        self.ended = ended
        return [json.loads(line) for line in lines]

    def _end_if_deaf(self) -> None:
        """A child that has closed its end is about to end. One that goes on has closed what is not its own."""
        now = time.monotonic()
        if self._deaf_since is None:
            self._deaf_since = now
        elif now - self._deaf_since > DEAF_SECONDS:
            self.kill()

    def look(self) -> bool:
        """See whether it has ended. It stays a zombie, so that its number stays its own."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True  # somebody else has waited for it

    def kill(self) -> None:
        """End it, and what its handlers have started and not set free."""
        if not self.killed:
            self.killed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def dispose(self, seconds: float = 0.0) -> str:
        """Ask it to go, kill it if it has not gone in time, and let go of it. Returns how it ended."""
        if seconds > 0:
            self.send({"bye": True})
            until = time.monotonic() + seconds
            while not self.look() and (left := until - time.monotonic()) > 0:
                self.listen(left)
        self.kill()  # before its number is given up: the group may outlive it
        code = self._process.wait()
        self._channel.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        return _described(code)


def _started(channel: int) -> subprocess.Popen[bytes]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return subprocess.Popen(
        [os.fsdecode(get_executable()), "-P", *flags, "-c", _BOOT, str(channel)],
        stdin=subprocess.DEVNULL,
        pass_fds=[channel],
        start_new_session=True,
    )


def _described(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    doubt = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{doubt}"


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or an old one
        return None


def _drain(channel: socket.socket) -> tuple[bytes, bool]:
    """Take what has come without waiting, and tell whether nothing more ever will."""
    data = b""
    try:
        while chunk := channel.recv(65_536):
            data += chunk
    except BlockingIOError:
        return data, False
    except OSError:
        pass
    return data, True
