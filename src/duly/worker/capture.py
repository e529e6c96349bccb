"""Keeps what a handler logs with its run."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from duly.worker.context import CURRENT, Run

_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")


class Capture(logging.Handler):
    """On the root logger while a worker runs; costs nothing outside jobs."""

    def __init__(self, held: Mapping[str, Run] | None = None) -> None:
        super().__init__(logging.DEBUG)
        self._held = held
        """The runs of one worker: another one in this process keeps its own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line with the run that logs it."""
        run = CURRENT.get()
        if run is None or (self._held is not None and self._held.get(run.job.id) is not run):
            return
        try:
            keep(run, record)
        except Exception:
            self.handleError(record)


def keep(run: Run, record: logging.LogRecord) -> None:
    """Keep a line with a run, unless it is one of our own."""
    if not record.name.startswith("duly."):
        run.log(_FORMAT.format(record))
