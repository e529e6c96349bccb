"""Tasks with `isolation="process"`, at the top level of a module as their children need them."""

from __future__ import annotations

from datetime import datetime, timedelta

from duly import Backoff, Duly, current_job

jobs = Duly("sqlite:///never-opened.db")


@jobs.task(isolation="process")
def decides(minutes: int) -> timedelta:
    """Say when to run again."""
    return timedelta(minutes=minutes)


@jobs.task(isolation="process")
def tells_tick() -> str:
    """Tell which tick this run is for."""
    tick = current_job().tick
    assert tick is not None
    return tick.isoformat()


@jobs.task(isolation="process", retry=Backoff.fixed(3600))
def naive() -> datetime:
    """Say when to run again, and not where."""
    return datetime(2100, 1, 1)  # noqa: DTZ001
