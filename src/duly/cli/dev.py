"""`duly dev`: a worker that starts again whenever the code changes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from duly.cli.apps import ENVIRONMENT
from duly.cli.base import NO_DATABASE, OK, Command, note, wants_json
from duly.cli.logs import say
from duly.cli.options import DURATION, include_option
from duly.cli.running import PROGRAM, Signals, watching_signals
from duly.cli.serving import MORE_PORTS, PORT, can_serve, free_port
from duly.cli.text import clean
from duly.cli.watch import Files

LOOK_EVERY = 0.5
SETTLE = 0.1
TRY_AGAIN = 2.0
STOP_SLACK = 6.0


@click.command(cls=Command)
@click.argument("app", envvar=ENVIRONMENT, metavar="FILE_OR_MODULE")
@click.option("--queue", "queues", multiple=True, metavar="QUEUES", help="As for duly worker.")
@click.option(
    "--grace", type=DURATION, default="2s", show_default=True, help="How long running jobs may take to end at a reload."
)
@click.option("--web/--no-web", "with_web", default=True, help="Also serve the dashboard, if it is installed.")
@click.option(
    "--port",
    type=click.IntRange(1, 65_525),
    default=PORT,
    show_default=True,
    metavar="N",
    help="Its port, or the next.",
)
@include_option
def dev(
    app: str, queues: tuple[str, ...], grace: timedelta, include: tuple[str, ...], with_web: bool, port: int
) -> int:
    """Run a worker that starts again when a .py file changes, and the dashboard.

    The database is made and migrated on the spot. `if __name__ == "__main__":` is not run.
    """
    arguments = [app, "--grace", f"{grace.total_seconds()}s"]
    arguments += [f"--queue={each}" for each in queues] + [f"--include={each}" for each in include]
    if with_web:
        arguments += _web_arguments(port)
    if wants_json():
        arguments.append("--json")
    with watching_signals() as signals:
        return Loop(arguments, _watched(app), signals, grace=grace.total_seconds(), json=wants_json()).run()


def _web_arguments(port: int) -> list[str]:
    """How the worker is told to serve the dashboard; nothing where it cannot."""
    if not can_serve():
        if not wants_json():
            note("For the dashboard: pip install 'duly[web]'")
        return []
    free = free_port(port)
    if free is None:
        raise click.BadParameter(f"ports {port} to {port + MORE_PORTS - 1} are all taken", param_hint="--port")
    return ["--web", str(free)]


def _watched(app: str) -> Files:
    """Watch the current directory, and the app's own folder where it lies elsewhere."""
    file = Path(app.rpartition(":")[0] if ".py:" in app else app)
    cwd = Path.cwd()
    return Files([cwd, file.resolve().parent] if file.suffix == ".py" and file.exists() else [cwd])


class Loop:
    """Keeps one worker process up to date with the files."""

    def __init__(self, arguments: list[str], files: Files, signals: Signals, *, grace: float, json: bool) -> None:
        self._arguments = arguments
        self._files = files
        self._signals = signals
        self._grace = grace
        self._json = json
        self._child: subprocess.Popen[bytes] | None = None
        self._start_at: float | None = 0.0
        self._first = True

    def run(self) -> int:
        """Watch until a signal comes. Returns the exit code."""
        try:
            while not self._signals.seen.wait(self._pause()):
                self._step()
        finally:
            self._stop_child()
        return OK

    def _pause(self) -> float:
        return 0.0 if self._start_at == 0.0 else max(LOOK_EVERY, self._files.seconds * 5)

    def _step(self) -> None:
        if self._start_at is not None and time.monotonic() >= self._start_at:
            self._start()
            return
        self._look_at_child()
        changed = self._files.changed()
        if changed:
            time.sleep(SETTLE)
            changed = sorted({*changed, *self._files.changed()})  # editors write in several steps
            self._reload(changed)

    def _start(self) -> None:
        command = [*PROGRAM, "worker", *self._arguments]
        command += ["--dev", "first" if self._first else "again", "--parent", str(os.getpid())]
        # In our group, so that it may read from the terminal (breakpoint()); Ctrl-C is for us, and we tell it.
        self._child = subprocess.Popen(command, preexec_fn=_ignore_interrupts)
        self._start_at = None

    def _look_at_child(self) -> None:
        """Say what became of a worker that ended by itself; start another where that may help."""
        if self._child is None or self._child.poll() is None:
            return
        code, self._child = self._child.returncode, None
        if code < 0:
            self._say("crashed", f"the worker was killed by {_signal_name(-code)}; starting another", code=code)
            self._start_at = time.monotonic() + TRY_AGAIN / 4
        elif code == NO_DATABASE:
            self._say("waiting", "trying again every few seconds, or when a file changes", code=code)
            self._start_at = time.monotonic() + TRY_AGAIN
        else:
            self._say("waiting", "waiting for a file to change", code=code)

    def _reload(self, changed: list[Path]) -> None:
        name = _shown(changed[0])
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        self._say("changed", f"{name}{more} changed; starting again", files=[str(path) for path in changed])
        self._first = self._first and self._child is None
        self._stop_child()
        self._start_at = 0.0

    def _stop_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        self._signal(child, signal.SIGTERM)
        deadline = time.monotonic() + self._grace + STOP_SLACK
        hurried = False
        while child.poll() is None:
            time.sleep(0.02)
            if self._signals.count > 1 and not hurried:
                hurried = True
                self._signal(child, signal.SIGTERM)
            if time.monotonic() > deadline:
                child.kill()
                child.wait()

    @staticmethod
    def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
        if child.poll() is None:
            child.send_signal(number)

    def _say(self, event: str, text: str, **fields: Any) -> None:
        at = time.strftime("%H:%M:%S")
        say(event, click.style(f"{at} {clean(text)}", fg="cyan"), json=self._json, **fields)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
