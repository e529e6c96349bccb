"""`duly top`: how things stand, live, for people in a terminal."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command, wants_json
from duly.cli.options import DURATION, database_options
from duly.cli.output import to_json
from duly.cli.text import clean
from duly.cli.top_frame import SORTS, Camera, Frame, draw
from duly.domain.errors import ConfigurationError, DatabaseUnavailable

if TYPE_CHECKING:
    from datetime import timedelta

HINT = "duly top needs rich. Run: pip install 'duly[rich]'. Without it there is: duly stats --watch"
SIZE = (80, 24)


@click.command(cls=Command)
@database_options
@click.option("--once", is_flag=True, help="Show one frame and end: for scripts.")
@click.option("--every", type=DURATION, default="2s", show_default=True, help="How often to look.")
@click.option(
    "--sort", type=click.Choice(SORTS), default="waiting", show_default=True, help="What the table is sorted by."
)
def top(url: str | None, schema: str | None, app: str | None, once: bool, every: timedelta, sort: str) -> None:
    """Show throughput, queues, tasks, workers, alerts and failures, live. q quits, p pauses, tab sorts."""
    camera = Camera(open_database(url, schema, app), every=every.total_seconds())
    if wants_json():
        click.echo(to_json(camera.take().as_dict()))
        return
    console = _console()
    if once or not sys.stdout.isatty():
        size = shutil.get_terminal_size(SIZE)
        console.print(draw(camera.take(), width=console.width, height=max(size.lines, SIZE[1]), sort=sort, keys=False))
        return
    try:
        Screen(camera, console, every=max(0.2, every.total_seconds()), sort=sort).run()
    except KeyboardInterrupt:
        return


def _console() -> Any:
    try:
        from rich.console import Console
    except ImportError as error:
        raise ConfigurationError(HINT) from error
    return Console(file=sys.stdout, width=shutil.get_terminal_size(SIZE).columns, highlight=False)


class Screen:
    """Draws again and again, and listens to keys."""

    def __init__(self, camera: Camera, console: Any, *, every: float, sort: str) -> None:
        self._camera = camera
        self._console = console
        self._every = every
        self._sort = sort
        self._paused = False
        self._frame: Frame | None = None
        self._trouble: str | None = None

    def run(self) -> None:
        """Show until q or Ctrl-C."""
        from rich.live import Live

        with _keys() as keys, Live(console=self._console, screen=True, auto_refresh=False) as live:
            due = 0.0
            while True:
                if not self._paused and time.monotonic() >= due:
                    self._look()
                    due = time.monotonic() + self._every
                live.update(self._drawn(), refresh=True)
                for key in keys(self._every if self._paused else max(0.05, due - time.monotonic())):
                    if key in ("q", "\x03", "\x1b"):
                        return
                    self._press(key)

    def _look(self) -> None:
        try:
            self._frame, self._trouble = self._camera.take(), None
        except DatabaseUnavailable as error:
            self._trouble = str(error)

    def _press(self, key: str) -> None:
        step = {"\t": 1, "right": 1, "down": 1, "left": -1, "up": -1}.get(key, 0)
        self._sort = SORTS[(SORTS.index(self._sort) + step) % len(SORTS)]
        if key in ("p", " "):
            self._paused = not self._paused

    def _drawn(self) -> Any:
        from rich.text import Text

        size = shutil.get_terminal_size(SIZE)
        if self._trouble is not None or self._frame is None:
            return Text(clean(self._trouble or "looking"), style="red")
        return draw(self._frame, width=size.columns, height=size.lines, sort=self._sort, paused=self._paused)


ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left"}
KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|.", re.S)


@contextmanager
def _keys() -> Iterator[Any]:
    """Have keys arrive one by one, unseen; where that cannot be had, only Ctrl-C works."""
    try:
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin.fileno())
    except (ImportError, OSError, ValueError):  # not a terminal, or not one of these
        yield _no_keys
        return
    except Exception as error:  # termios.error is none of the above
        if type(error).__module__ != "termios":
            raise
        yield _no_keys
        return
    try:
        tty.setcbreak(sys.stdin.fileno())
        yield _read_keys
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


def _no_keys(seconds: float) -> list[str]:
    time.sleep(seconds)
    return []


def _read_keys(seconds: float) -> list[str]:
    """The keys that were pressed, once there are any or the time is up."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    text = os.read(sys.stdin.fileno(), 256).decode("ascii", "replace") if ready else ""
    return [ARROWS.get(found, found) for found in KEY.findall(text)]
