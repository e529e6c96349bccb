"""Two who mend at once mend once, and what moves on while it is mended loses nothing."""

from __future__ import annotations

from typing import Any

import pytest

from duly.store import ops_repair
from duly.store.call import Call, Dialect, Op, Rows
from tests.guards.racing import Beside, Pair, interrupted
from tests.store.factory import Factory

PG = Dialect.POSTGRES


def ask(name: str, **params: Any) -> Op[Rows]:
    return (yield Call(name, params))


def test_two_who_put_a_lost_job_back_do_so_once(pair: Pair) -> None:
    job_id = pair.one.enqueue()
    pair.raw.rows("DELETE FROM duly.waiting")
    again = Beside(pair.raw, lambda: pair.other.store.run(lambda: ops_repair.put_back(PG, [job_id])))
    op = interrupted(ops_repair.put_back(PG, [job_id]), "lock_job", again.must_wait)
    assert len(pair.one.store.run(lambda: op)) == 1
    assert again.answer() == []


@pytest.mark.parametrize("place", ["scheduled", "waiting", "parked", "running"])
def test_a_job_is_held_in_every_place_while_it_is_mended(pair: Pair, place: str) -> None:
    """In two places: neither may be left before one is chosen."""
    job_id = _in_two_places(pair, place)
    free: list[bool] = []

    def look() -> None:
        row = f"SELECT id FROM duly.{place} WHERE id = '{job_id}' FOR UPDATE SKIP LOCKED"
        free.append(bool(pair.raw.rows(row)))

    op = interrupted(ops_repair.leave_one_place(PG, [job_id]), "lock_places", look)
    assert len(pair.one.store.run(lambda: op)) == 1
    assert free == [False], f"it could be taken out of {place} while it is mended"


def _in_two_places(pair: Pair, place: str) -> str:
    job_id = pair.one.enqueue(delay_us=1 if place == "scheduled" else 0)
    if place == "running":
        pair.one.take()
    columns, source = "id, queue, tenant, task, run_at, priority", "waiting" if place == "parked" else place
    pair.raw.rows(
        f"INSERT INTO duly.parked ({columns}, parked_at, reason) SELECT {columns}, 1, 'arguments' FROM duly.{source}"
    )
    return job_id


def test_how_a_recurring_job_stands_is_not_written_over_what_another_wrote(make: Factory) -> None:
    job_id = make.enqueue()
    params = {"id": job_id, "next_run_at": 1, "by": None, "reason": None}
    for token in (5, 1):
        make.store.run(lambda token=token: ask("insert_lost_standing", **params, enabled=False, token=token))  # type: ignore[misc]
    assert make.raw.rows("SELECT token FROM duly.recurring") == [(5,)]
    make.raw.rows("DELETE FROM duly.recurring")
