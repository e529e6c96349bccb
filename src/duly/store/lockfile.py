"""A lock between processes: a file beside the database, locked while one of them writes."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from duly.domain.errors import DatabaseUnavailable

try:
    import fcntl
except ImportError:  # Windows: SQLite's own lock alone keeps writers apart
    fcntl = None  # type: ignore[assignment]


class LockFile:
    """Held by at most one process at a time; the kernel frees it when a process ends.

    A forked child closes its copy at once: else a lock would outlive the parent that holds it. Closing a copy frees
    nothing while the parent lives.
    """

    _inherited: ClassVar[weakref.WeakSet[LockFile]] = weakref.WeakSet()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._inherited.add(self)

    @classmethod
    def _close_after_fork(cls) -> None:
        for lock in cls._inherited:
            lock.close()

    @contextmanager
    def held(self, timeout: float) -> Iterator[None]:
        """Hold the lock; give up with a clear error after `timeout` seconds."""
        if fcntl is None:
            yield
            return
        if self._fd is None:
            self._open()
        try:  # a timeout may be raised in this thread as soon as it has the lock
            self._acquire(timeout)
            yield
        finally:
            if self._fd is not None:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise DatabaseUnavailable(
                f"cannot make the lock file {self.path}: {error.strerror}. "
                "The folder of an SQLite database must exist and be writable"
            ) from error

    def _acquire(self, timeout: float) -> None:
        assert self._fd is not None
        pause, deadline = 0.0001, time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DatabaseUnavailable(
                        f"{self.path} has been held by another process for {timeout:.0f} s. "
                        "A worker on this file may be stopped in the debugger or by SIGSTOP: let it go on, or end it"
                    ) from None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.002)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LockFile._close_after_fork)
