"""Keeps what a handler logs with its run."""

from __future__ import annotations

import logging

from duly.worker.context import CURRENT

_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")


class Capture(logging.Handler):
    """On the root logger while a worker runs; costs nothing outside jobs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line with the run that logs it."""
        run = CURRENT.get()
        if run is None or record.name.startswith("duly."):
            return
        try:
            run.log(_FORMAT.format(record))
        except Exception:
            self.handleError(record)
