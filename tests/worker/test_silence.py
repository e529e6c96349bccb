"""A network that swallowed everything for a while swallowed the renewals of others too: they are not robbed for it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from duly import Duly
from duly.domain.ids import uuid7
from duly.domain.records import Lane
from duly.store.postgres import PostgresDatabase
from duly.store.store import Store
from duly.worker.upkeep import Upkeep
from tests.helpers import opened

LEASE = 1.5


def lapsed_run(jobs: Duly) -> str:
    """A job whose worker, of which nothing is known, has not renewed its lease in time."""

    @jobs.task
    def work() -> None: ...

    job = work.enqueue()
    jobs.store.claim("default", [Lane("", job.task)], 1, worker_id=uuid7(), lease_us=1)
    time.sleep(LEASE / 10)
    return job.id


def upkeep(jobs: Duly) -> Upkeep:
    """That of a worker that has been in touch for longer than a lease."""
    settings: Any = SimpleNamespace(lease=LEASE, crash_limit=3)
    keeper: Any = SimpleNamespace(late=False, thawed_at=0.0)
    nobody: Any = None
    made = Upkeep(
        jobs.store, uuid7(), settings, held={}, claimer=nobody, keeper=keeper,
        state=lambda: "running", write_down=lambda: None, wake_claimer=lambda: None, retire=lambda: None,
    )  # fmt: skip
    jobs.store.now_us()
    made._awake_since -= 2 * LEASE
    database = jobs.store.database
    assert isinstance(database, PostgresDatabase)
    database._contact.clock = lambda: time.monotonic() + 2 * LEASE
    return made


def late(store: Store) -> int:
    """An answer that was held up on its way."""
    time.sleep(1.1)
    return 0


@pytest.mark.requirement("D1")
def test_after_a_late_answer_others_are_given_time_to_renew(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(pg_url) as jobs:
        lapsed_run(jobs)
        mine = upkeep(jobs)
        prompt = Store.now_us
        monkeypatch.setattr(Store, "now_us", late)
        mine._rescue_lapsed(time.monotonic())
        assert mine.rescued == 0
        monkeypatch.setattr(Store, "now_us", prompt)
        mine._rescue_lapsed(time.monotonic())
        assert mine.rescued == 0, "a whole lease must pass"
        mine._awake_since -= 2 * LEASE
        mine._rescue_lapsed(time.monotonic())
        assert mine.rescued == 1


def test_a_database_that_is_always_slow_does_not_keep_jobs_from_being_rescued(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(pg_url) as jobs:
        lapsed_run(jobs)
        mine = upkeep(jobs)
        monkeypatch.setattr(Store, "now_us", late)
        mine._rescue_lapsed(time.monotonic())
        mine._awake_since -= 2 * LEASE
        mine._rescue_lapsed(time.monotonic())
        assert mine.rescued == 1


def test_who_renews_gives_a_silent_connection_up_soon(pg_url: str) -> None:
    store = Store.open(pg_url)
    hasty = store.reserved("lease", patience=5.0)
    assert isinstance(hasty.database, PostgresDatabase)
    hasty.now_us()
    connection = hasty.database._connections.take()
    told = connection.info.get_parameters()
    assert (told["tcp_user_timeout"], told["connect_timeout"]) == ("5000", "5")
    hasty.database._connections.give(connection)
    hasty.release()
    store.close()
