"""What a worker's terminal or log collector sees: clean lines, or one JSON object per line."""

from __future__ import annotations

import copy
import logging
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from duly.cli.output import to_json
from duly.cli.text import clean_lines, tail, without_password
from duly.domain.durations import human
from duly.domain.errors import DulyError

LEVELS = ("debug", "info", "warning", "error")
_COLOURS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red", logging.DEBUG: "bright_black"}

log = logging.getLogger("duly.runs")


class Lines(logging.Formatter):
    """A line for people. What follows a line break is indented, so that no message can pass for another line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return it, with the traceback of an error that its message does not explain."""
        if record.exc_info and isinstance(record.exc_info[1], DulyError):
            record = copy.copy(record)
            record.exc_info = record.exc_text = None
        text = clean_lines(without_password(super().format(record))).replace("\n", "\n    ")
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        name = "" if record.name.startswith("duly.") else f"{clean_lines(record.name)}: "
        return f"{at} {click.style(level, fg=_COLOURS.get(record.levelno))}{name}{text}"


class JsonLines(logging.Formatter):
    """A JSON object per line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return it."""
        fields: dict[str, Any] = {
            "event": "log",
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_password(record.getMessage()),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return to_json(fields)


class EchoHandler(logging.Handler):
    """Writes through click, which takes colours out where there is no terminal."""

    def __init__(self, *, json: bool) -> None:
        super().__init__()
        self._json = json
        self.setFormatter(JsonLines() if json else Lines())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            click.echo(self.format(record), err=not self._json)
        except Exception:
            self.handleError(record)


def set_up_logging(*, json: bool, level: str) -> EchoHandler | None:
    """Show log lines, unless the application has set up logging of its own. Returns what to take down again."""
    root = logging.getLogger()
    if any(not type(handler).__module__.startswith("_pytest") for handler in root.handlers):
        return None
    handler = EchoHandler(json=json)
    root.addHandler(handler)
    root.setLevel(level.upper())
    return handler


def narrate(run: Any) -> Iterator[None]:
    """Say when each run starts and ends: middleware for `duly dev` and `--verbose`."""
    again = f" (attempt {run.attempt} of {run.max_attempts})" if run.attempt > 1 else ""
    log.info("%s %s started%s", run.task, tail(run.id), again)
    begun = time.monotonic()
    yield
    took = human(timedelta(milliseconds=max(1, round((time.monotonic() - begun) * 1000))))
    log.info("%s %s done in %s", run.task, tail(run.id), took)


def say(event: str, text: str, *, json: bool, **fields: Any) -> None:
    """Tell what the worker does: a line on stderr, or an object on stdout."""
    if json:
        click.echo(to_json({"event": event, "at": datetime.now(UTC).isoformat(), **fields}))
    else:
        click.echo(text, err=True)
    sys.stdout.flush()
