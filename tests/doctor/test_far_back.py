"""A check-up looks for lost jobs among the newest, and for jobs in two places, or places without a job, among all."""

from __future__ import annotations

import random

import pytest

from duly import Duly
from duly.doctor import jobs as of_jobs
from duly.doctor.finding import Finding
from tests.store.raw import PLACES, Raw

pytestmark = pytest.mark.requirement("C15")
NEWEST = 12
WORKER = "00000000-0000-7000-8000-00000000ffff"
NOT_ENDED = ("scheduled", "waiting", "parked", "running")
INTO = {
    "jobs": "(id, task, args, created_at) VALUES ('{id}', 'send', '{{}}', 1)",
    "scheduled": "(id, run_at, queue, tenant, task, priority)"
    " VALUES ('{id}', 9000000000000000, 'default', '', 'send', 0)",
    "waiting": "(queue, tenant, task, rank, id, run_at, priority) VALUES ('default', '', 'send', 1, '{id}', 1, 0)",
    "parked": "(id, queue, tenant, task, run_at, priority, parked_at, reason)"
    " VALUES ('{id}', 'default', '', 'send', 1, 0, 1, 'arguments')",
    "running": "(id, worker_id, token, run_at, claimed_at, leased_until, attempt, priority, crashes, hold, queue,"
    " tenant, task) VALUES ('{id}', '" + WORKER + "', 1, 1, 1, 9000000000000000, 1, 0, 0, 0, 'default', '', 'send')",
    "ended": "(id, state, finished_at, token, attempt, crashes)"
    " VALUES ('{id}', 'succeeded', 9000000000000000, 1, 1, 0)",
    "recurring": "(id, enabled, token) VALUES ('{id}', true, 0)",
}


def job_id(n: int) -> str:
    return f"00000000-0000-7000-8000-{n:012d}"


def put(raw: Raw, n: int, *tables: str) -> None:
    for table in tables:
        raw.rows(f"INSERT INTO duly.{table} {INTO[table].format(id=job_id(n))}")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_jobs, "LOOKED_AT", NEWEST)


def said(jobs: Duly, *, deep: bool = False) -> dict[str, Finding]:
    checks = ("nowhere", "twice", "jobless", "places")
    return {each.check: each for each in jobs.doctor(deep=deep) if each.area == "jobs" and each.check in checks}


def ids(found: dict[str, Finding], check: str) -> set[object]:
    listed = found[check].evidence["jobs"] if check in found else []
    assert isinstance(listed, list)
    assert len(listed) == len(set(listed))
    return set(listed)


@pytest.mark.everywhere
@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_is_what_there_is(timed: Duly, raw: Raw, seed: int) -> None:
    chance = random.Random(seed)
    there: dict[int, set[str]] = {}
    for n in range(1, 41):
        places = {chance.choice(PLACES)} if chance.random() < 0.7 else set(chance.sample(PLACES, chance.randrange(4)))
        there[n] = places | ({"jobs"} if chance.random() < 0.8 else set())
        there[n] |= {"recurring"} if chance.random() < 0.1 else set()
        put(raw, n, *sorted(there[n]))
    newest = sorted((n for n in there if "jobs" in there[n]), reverse=True)
    live = {n: there[n].intersection(NOT_ENDED) for n in there}
    for deep in (False, True):
        found = said(timed, deep=deep)
        looked_at = newest if deep else newest[:NEWEST]
        lost = {job_id(n) for n in looked_at if not there[n].intersection((*PLACES, "recurring"))}
        twice = {job_id(n) for n in there if len(live[n]) > 1 or (live[n] and "ended" in there[n])}
        jobless = {job_id(n) for n in there if live[n] and not there[n].intersection(("jobs", "recurring"))}
        assert (ids(found, "nowhere"), ids(found, "twice"), ids(found, "jobless")) == (lost, twice, jobless)


@pytest.mark.parametrize(
    "n, seen", [(0, "0 jobs"), (1, "1 job"), (12, "12 jobs"), (13, "the newest 12 jobs (--deep: all)")]
)
def test_how_many_were_looked_at_is_told(timed: Duly, raw: Raw, n: int, seen: str) -> None:
    for number in range(1, n + 1):
        put(raw, number, "jobs", "ended")
    finding = said(timed)["places"]
    assert finding.what == f"{seen} looked at, each in one place"
    assert finding.evidence["looked_at"] == min(n, NEWEST)
    assert said(timed, deep=True)["places"].evidence["looked_at"] == n


def test_of_the_newest_jobs_the_last_one_is_looked_at_and_the_next_one_is_not(timed: Duly, raw: Raw) -> None:
    for number in range(1, NEWEST + 2):
        put(raw, number, "jobs", "ended")
    raw.rows(f"DELETE FROM duly.ended WHERE id IN ('{job_id(1)}', '{job_id(2)}')")
    assert ids(said(timed), "nowhere") == {job_id(2)}
    assert ids(said(timed, deep=True), "nowhere") == {job_id(1), job_id(2)}


@pytest.mark.parametrize("jobs_there", [NEWEST - 1, NEWEST, NEWEST + 1])
def test_a_place_without_a_job_is_found_before_the_first_job(timed: Duly, raw: Raw, jobs_there: int) -> None:
    for number in range(2, jobs_there + 2):
        put(raw, number, "jobs", "ended")
    put(raw, 1, "waiting")
    assert ids(said(timed), "jobless") == {job_id(1)}
