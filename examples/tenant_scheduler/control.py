"""Starts processes of the scheduler and talks to them, as you would in terminals of your own."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0


class Controlled:
    """One process, told what to do through its standard input."""

    def __init__(self, name: str, ledger: Path, url: str | None = None) -> None:
        self.name = name
        environment = os.environ | {"LEDGER": str(ledger)}
        if url is not None:
            environment["DULY_URL"] = url
        command = [sys.executable, "-m", "examples.tenant_scheduler.process", name]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def wait_until_up(self) -> None:
        """Wait until it takes commands: the first that it says is its name."""
        said = self.hear()
        assert said.startswith(self.name), said

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line.rstrip("\n"))

    def hear(self) -> str:
        """The next line that it says."""
        return self._said.get(timeout=PATIENCE)

    def say(self, command: str, *, lines: int = 1) -> list[str]:
        """Give it a command. Returns what it answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        return [self.hear() for _ in range(lines)]

    def kill(self, by: signal.Signals) -> int:
        """Send it a signal and wait for its end. Returns how it ended."""
        self.process.send_signal(by)
        return self.process.wait(PATIENCE)

    def let_go(self) -> None:
        """Let it stop: its input ends."""
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended already
            self.process.stdin.close()

    def close(self) -> None:
        """Wait until it has stopped."""
        assert self.process.stdout is not None
        self.let_go()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join()
        self.process.stdout.close()
