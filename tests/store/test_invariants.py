"""The checks that end every test of the store can fail: each is shown a database that is wrong in its way."""

from __future__ import annotations

import pytest

from duly.store.opening import open_database
from duly.store.store import Store
from duly.testing import TestClock
from tests.store import invariants
from tests.store.factory import Factory
from tests.store.raw import Raw


@pytest.fixture
def make(database_url: str, raw: Raw, clock: TestClock) -> Factory:
    """A job in every place, and a store that is not checked at the end."""
    store = Store(open_database(database_url, clock))
    factory = Factory(store, clock, raw)
    factory.ended()
    factory.unique("k", mode="keep_latest")
    factory.take()
    factory.unique("k", mode="keep_latest")
    factory.enqueue()
    factory.enqueue(delay_us=1)
    store.close()
    return factory


def test_sound_tables_pass_and_each_job_has_one_place(make: Factory, raw: Raw) -> None:
    invariants.check(raw)
    assert sorted(invariants.places_of(raw).values()) == ["ended", "parked", "running", "scheduled", "waiting"]


WRONGS = {
    "in no place": "DELETE FROM duly.waiting",
    "in several places": "INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes) "
    "SELECT id, 'failed', 1, token, attempt, crashes FROM duly.running",
    "without a job": "DELETE FROM duly.jobs WHERE id IN (SELECT id FROM duly.running)",
    "runs of no job": "UPDATE duly.runs SET job_id = '00000000-0000-0000-0000-000000000000'",
    "token went back": "INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id) "
    "SELECT id, token, attempt, 'failed', 1, 1, worker_id FROM duly.running",
    "still holds its key": "UPDATE duly.unique_keys SET job_id = (SELECT id FROM duly.ended)",
    "which does not exist": "UPDATE duly.unique_keys SET job_id = '00000000-0000-0000-0000-000000000000'",
    "without their key": "UPDATE duly.waiting SET hold = 2",
    "rank": "UPDATE duly.waiting SET rank = rank + 1",
    "suspect": "UPDATE duly.waiting SET crashes = 2",
    "will not come": "UPDATE duly.unique_keys SET next_id = NULL",
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_wrong_tables_are_noticed(make: Factory, raw: Raw, wrong: str) -> None:
    raw.rows(WRONGS[wrong])
    with pytest.raises(AssertionError, match=wrong):
        invariants.check(raw)
