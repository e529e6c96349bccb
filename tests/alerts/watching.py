"""Has a worker look for alerts of one rule, often, and tells which are active."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from duly import AlertEvent, AlertRecord, Duly
from duly.domain.alerts import RULES
from duly.worker.worker import Worker
from tests.helpers import eventually

OFF: dict[str, Any] = dict.fromkeys(RULES, False)
OFTEN: dict[str, Any] = {"interval": 0.1, "clear_after": 0}


class Told:
    """What `@jobs.on_alert` was told."""

    def __init__(self, jobs: Duly) -> None:
        self.events: list[AlertEvent] = []
        jobs.on_alert(self.events.append)

    @property
    def words(self) -> list[str]:
        return [f"{each.event} {each.rule} {each.subject}" for each in self.events]


@contextmanager
def watching(jobs: Duly, queues: object = None, /, **alerts: Any) -> Iterator[Worker]:
    """A worker that looks often, for the rules that are named alone."""
    jobs.alerts.configure(**OFF)
    jobs.alerts.configure(**OFTEN, **alerts)
    with jobs.worker(queues) as worker:
        yield worker


def active(jobs: Duly) -> list[str]:
    """The alerts that are active."""
    return [f"{each.rule} {each.subject}" for each in jobs.alerts()]


def raised(jobs: Duly, word: str) -> AlertRecord:
    """Wait until exactly this alert is active."""
    eventually(lambda: active(jobs) == [word], within=15)
    return jobs.alerts()[0]


def cleared(jobs: Duly) -> AlertRecord:
    """Wait until none is active; return the one that ended last."""
    eventually(lambda: not active(jobs), within=15)
    return jobs.alerts(all=True)[0]
