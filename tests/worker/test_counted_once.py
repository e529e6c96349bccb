"""A run is counted once, also where the database goes away halfway through a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from duly.domain.errors import DatabaseError, DatabaseUnavailable
from duly.domain.records import HOLD, Settled
from duly.store.ops_recurring_runs import Ended
from duly.worker.context import Run
from duly.worker.executor import Concluded
from duly.worker.finisher import Finisher
from tests.worker.concluded import concluded

NEXT: Any = SimpleNamespace(state="recurs", reason=None, place_at=None)


def recurring_run() -> Concluded:
    run, at, settled = concluded()
    run.job = run.job._replace(hold=HOLD["recurs"])
    return run, at, settled


def test_runs_of_recurring_jobs_are_counted_once_though_the_database_went_away_before_all_had_ended() -> None:
    """They are ended one by one, as together something was refused; after the first there is no answer."""
    calls: list[list[str]] = []

    def end_recurring(batch: list[Settled], **_: Any) -> Ended:
        calls.append([settled.id for settled in batch])
        if len(calls) == 1:
            raise DatabaseError("one of them is refused")
        if len(calls) == 3:
            raise DatabaseUnavailable("gone")
        return Ended({settled.id: NEXT for settled in batch}, set(), {}, {})

    held: dict[str, Run] = {}
    told: list[Concluded] = []
    store: Any = SimpleNamespace(end_recurring=end_recurring, poke=lambda hint: None)
    finisher = Finisher(store, held, lambda *_: None, finished=lambda over: None, due_in=lambda seconds: None)
    finisher.report = told.extend
    first, second = recurring_run(), recurring_run()
    for each in (first, second):
        held[each[0].job.id] = each[0]
        finisher.conclude(each)
    try:
        finisher.step()
    except DatabaseUnavailable:
        finisher.step()
    ids = [each[2].id for each in (first, second)]
    assert calls == [ids, ids[:1], ids[1:], ids[1:]]
    assert (finisher.settled, told, held) == (2, [first, second], {})
    assert finisher.idle
