"""`duly worker` as people run it, started and told to stop by a scenario."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

from chaos.arena import ROOT, START_SECONDS, Arena
from chaos.host import LEDGER


class CommandWorker:
    """The command, with the tasks of `chaos.host`, on an arena's database."""

    def __init__(self, arena: Arena, *words: str) -> None:
        slots = ["--threads", str(arena.worker["thread_slots"]), "--async-slots", str(arena.worker["async_slots"])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "duly", "worker", "chaos.host:jobs", "--log-level", "error", *slots, *words],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
                "CHAOS_URL": arena.url,
                "CHAOS_SETTINGS": json.dumps(arena.settings),
                LEDGER: str(arena.ledger.path),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where it says hello
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def ready(self, within: float = START_SECONDS) -> None:
        """Wait until its worker, or the first of them, has started."""
        assert self.process.stdout is not None
        until, said = time.monotonic() + within, b""
        while b"ready\n" not in said:
            left = until - time.monotonic()
            heard = select.select([self.process.stdout], [], [], max(0.0, left))[0]
            more = os.read(self.process.stdout.fileno(), 65_536) if heard else b""
            if not more:
                raise RuntimeError(f"duly worker did not start (exit {self.process.poll()}), it said {said!r}")
            said += more

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def close(self) -> None:
        """End it, in good order where it can be."""
        if self.process.poll() is None:
            self.send(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
