"""Starts and ends the worker processes that are measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from duly.bench.worker import GRACE, READY
from duly.domain.errors import DulyError

STOP_SECONDS = GRACE + 10.0
HERE = str(Path(__file__).parents[2])  # not installed perhaps


class WorkerFailed(DulyError):
    """A worker process that was to be measured has ended."""


class Workers:
    """Some worker processes on one queue."""

    def __init__(self, told: Mapping[str, Any], n: int, errors: IO[bytes]) -> None:
        self._errors = errors
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, *filter(None, sys.path)])}
        command = [sys.executable, "-m", "duly.bench.worker"]
        self._processes: list[subprocess.Popen[str]] = []
        for _ in range(n):
            self._processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=environment,
                )
            )
        self._tell(json.dumps(told))

    def _tell(self, line: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended: that shows when it should be ready
                process.stdin.write(f"{line}\n")
                process.stdin.flush()

    def start(self) -> None:
        """Have them start to work together, when each is ready."""
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                self._complain(process.wait())
        self._tell("go")

    def check(self) -> None:
        """Raise if one has ended."""
        for process in self._processes:
            if process.poll() is not None:
                self._complain(process.returncode)

    def _complain(self, code: int) -> None:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        said = f": {lines[-1]}" if lines else ""
        raise WorkerFailed(f"a worker process that was to be measured ended with code {code}{said}")

    def stop(self) -> None:
        """End them all, by force if need be."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended before it was told anything
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def kill(self) -> None:
        """End them at once."""
        for process in self._processes:
            process.kill()


@contextmanager
def workers(told: Mapping[str, Any], n: int) -> Iterator[Workers]:
    """Run worker processes; all are gone at the end, at once where something went wrong."""
    with tempfile.TemporaryFile() as errors:
        started = Workers(told, n, errors)
        try:
            started.start()
            yield started
        except BaseException:
            started.kill()
            raise
        finally:
            started.stop()
