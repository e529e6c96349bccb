"""Keeps what a handler logs with its run."""

from __future__ import annotations

import logging

from duly.worker.context import CURRENT, Run

_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")


class Capture(logging.Handler):
    """On the root logger while a worker runs; costs nothing outside jobs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line with the run that logs it."""
        run = CURRENT.get()
        if run is None:
            return
        try:
            keep(run, record)
        except Exception:
            self.handleError(record)


def keep(run: Run, record: logging.LogRecord) -> None:
    """Keep a line with a run, unless it is one of our own."""
    if not record.name.startswith("duly."):
        run.log(_FORMAT.format(record))
