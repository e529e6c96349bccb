"""Whatever is done to the tables, repairs leave every job that there was in one place, and everything as it must be."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from duly import Duly
from duly.testing import TestClock
from tests.store import invariants
from tests.store.factory import SETTLES, Factory
from tests.store.raw import PLACES, Raw

pytestmark = pytest.mark.requirement("C15")
COLUMNS = "id, queue, tenant, task, run_at, priority, token, attempt, crashes, hold"
DAMAGE = (*PLACES, "unique_keys", "recurring", "schedules")


def populate(jobs: Duly, make: Factory, clock: TestClock, chance: random.Random) -> None:
    """Jobs of all kinds in all places."""

    @jobs.task
    def fetch(n: int) -> None: ...

    for n in range(12):
        make.enqueue(max_attempts=chance.choice([1, 3]), delay_us=chance.choice([0, 0, 3_600_000_000]))
        make.unique(f"k{n % 4}", mode=chance.choice(["skip", "keep_latest"]), scope=chance.choice(["queued", "live"]))
        fetch.recur(f"feed {n}", every="1h", args={"n": n}, overlap=chance.choice(["skip", "allow"]))
        if chance.random() < 0.3:
            jobs.recurring_job("fetch", f"feed {n}").disable()
        jobs.store.promote()
        for run in [*make.claim(chance.randrange(3)), *make.claim(1, task="fetch")]:
            if chance.random() < 0.7:
                settled = chance.choice(list(SETTLES.values()))(run)
                jobs.store.settle_keyed(settled, run.hold)
        clock.advance(timedelta(minutes=chance.randrange(90)))


def ids_in(raw: Raw, table: str) -> list[str]:
    column = "job_id" if table == "unique_keys" else "id"
    return sorted(str(row[0]) for row in raw.rows(f"SELECT {column} FROM duly.{table}"))


def damage(raw: Raw, chance: random.Random) -> None:
    """Take rows away, and double others, at random."""
    for table in DAMAGE:
        column = "job_id" if table == "unique_keys" else "id"
        for job_id in ids_in(raw, table):
            if chance.random() < 0.25:
                raw.rows(f"DELETE FROM duly.{table} WHERE {column} = '{job_id}'")
    for source in ("scheduled", "waiting", "running"):
        for job_id in ids_in(raw, source):
            if chance.random() < 0.3:
                raw.rows(
                    "INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, token, attempt, crashes,"
                    f" hold, parked_at, reason) SELECT {COLUMNS}, run_at, 'arguments' FROM duly.{source}"
                    f" WHERE id = '{job_id}' ON CONFLICT DO NOTHING"
                )
            if chance.random() < 0.2:
                raw.rows(
                    "INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes, hold)"
                    f" SELECT id, 'failed', run_at, token, attempt, crashes, hold FROM duly.{source}"
                    f" WHERE id = '{job_id}' ON CONFLICT DO NOTHING"
                )


def mend(jobs: Duly, raw: Raw) -> None:
    for _ in range(3):  # one repair may uncover what another mends
        found = jobs.doctor(fix=True)
        assert not [each.refused for each in found if each.refused]
    assert [each.what for each in jobs.doctor() if each.fix is not None] == []
    invariants.check(raw)


@pytest.mark.parametrize("seed", range(8))
def test_no_damage_is_left_and_no_job_lost(timed: Duly, make: Factory, clock: TestClock, raw: Raw, seed: int) -> None:
    chance = random.Random(seed)
    populate(timed, make, clock, chance)
    invariants.check(raw)
    assert [each.what for each in timed.doctor() if each.fix is not None] == []
    jobs = ids_in(raw, "jobs")
    damage(raw, chance)
    mend(timed, raw)
    assert ids_in(raw, "jobs") == jobs


@pytest.mark.parametrize("seed", range(4))
def test_where_jobs_are_gone_nothing_is_left_that_names_them(
    timed: Duly, make: Factory, clock: TestClock, raw: Raw, seed: int
) -> None:
    chance = random.Random(seed)
    populate(timed, make, clock, chance)
    damage(raw, chance)
    for job_id in ids_in(raw, "jobs"):
        if chance.random() < 0.3:
            raw.rows(f"DELETE FROM duly.runs WHERE job_id = '{job_id}'")
            raw.rows(f"DELETE FROM duly.jobs WHERE id = '{job_id}'")
    raw.rows("DELETE FROM duly.ended WHERE id NOT IN (SELECT id FROM duly.jobs)")
    mend(timed, raw)
