"""A handler that a child process can import."""

from __future__ import annotations

from pathlib import Path

from duly import RateLimited
from tests.helpers import Ledger


def fetch(host: str, path: str) -> None:
    """Ask for rest the first time."""
    ledger = Ledger(Path(path))
    ledger.write(host, "start")
    if ledger.count("start", host) == 1:
        raise RateLimited(retry_after=0.3)
