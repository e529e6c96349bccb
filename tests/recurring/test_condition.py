"""`enabled` by a condition in the caller's own transaction, with every library that callers use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from duly import Duly, InvalidOption, RecurringJob
from tests.foreign.callers import Asynchronous, Caller
from tests.foreign.conftest import Case, by_hand
from tests.helpers import opened
from tests.store.raw import Raw

ANY_LEFT = "EXISTS (SELECT 1 FROM subs WHERE feed = :feed)"


@pytest.fixture
def app(case_url: str, raw: Raw) -> Iterator[Duly]:
    """An application with subscriptions to feeds, each of which is fetched while somebody subscribes to it."""
    by_hand(case_url, "CREATE TABLE subs (feed integer, who varchar(40))")
    with opened(case_url) as jobs:

        @jobs.task
        def fetch() -> None: ...

        yield jobs


@pytest.fixture
def caller(case: Case, case_url: str, app: Duly) -> Iterator[Caller]:
    with closing(case.caller(case_url)) as caller:
        yield caller


def set_enabled(caller: Caller, job: RecurringJob, sql: str, params: dict[str, object] | None = None) -> bool:
    if isinstance(caller, Asynchronous):
        return caller.wait(job.aset_enabled(sql=sql, params=params, connection=caller.connection))
    return job.set_enabled(sql=sql, params=params, connection=caller.connection)


def recur(caller: Caller, app: Duly, key: object) -> RecurringJob:
    task = app["fetch"]
    if isinstance(caller, Asynchronous):
        return caller.wait(task.arecur(key, cron="@daily", connection=caller.connection))
    return task.recur(key, cron="@daily", connection=caller.connection)


@pytest.mark.requirement("A5")
def test_it_comes_and_goes_with_the_callers_transaction(app: Duly, caller: Caller) -> None:
    caller.begin()
    caller.execute("INSERT INTO subs VALUES (1, 'ada')")
    job = recur(caller, app, 1)
    caller.commit()
    assert app.recurring_job("fetch", 1).enabled
    caller.begin()
    caller.execute("DELETE FROM subs")
    assert set_enabled(caller, job, ANY_LEFT, {"feed": 1}) is False
    caller.rollback()
    assert job.refresh().enabled
    caller.begin()
    caller.execute("DELETE FROM subs")
    assert set_enabled(caller, job, ANY_LEFT, {"feed": 1}) is False
    caller.commit()
    assert not job.refresh().enabled
    caller.begin()
    caller.execute("INSERT INTO subs VALUES (1, 'bob')")
    assert set_enabled(caller, job, ANY_LEFT, {"feed": 1}) is True
    caller.commit()
    assert job.refresh().enabled


@pytest.mark.requirement("A5")
def test_parameters_casts_and_quoted_text(app: Duly, caller: Caller, case: Case) -> None:
    job = app["fetch"].recur(1, cron="@daily")
    cast = "::integer" if case.kind.is_postgres else ""
    conditions: list[tuple[str, dict[str, object], bool]] = [
        ("1 = 1", {}, True),
        ("NULL IS NOT NULL", {}, False),
        ("NULL", {}, False),
        (f"(SELECT count(*) FROM subs WHERE who = :who) > 0{cast}", {"who": "it's 100 %"}, True),
        ("(SELECT count(*) FROM subs WHERE who = :who AND feed = :feed) = 1", {"who": "it's 100 %", "feed": 1}, True),
        ("EXISTS (SELECT 1 FROM subs WHERE who = ':feed %s $1 ?1')", {}, False),
        ("EXISTS (SELECT 1 FROM subs WHERE who LIKE 'it''s%' AND feed % 2 = :feed)", {"feed": 1}, True),
        (f"'1'{cast} = '2'{cast}", {}, False),
        ("1 = 1 -- of course: :nobody\n", {}, True),
        ("1 = 1 -- of course", {}, True),
    ]
    caller.begin()
    caller.execute("INSERT INTO subs VALUES (1, 'it''s 100 %')")
    for sql, params, expected in conditions:
        assert set_enabled(caller, job, sql, params) is expected, sql
    caller.commit()


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(
    "sql, params",
    [("nonsense here", {}), ("EXISTS (SELECT 1 FROM nowhere)", {}), (ANY_LEFT, {"fed": 1}), (ANY_LEFT, None)],
)
def test_a_condition_that_cannot_be_read_leaves_the_transaction_usable(
    app: Duly, caller: Caller, sql: str, params: Any
) -> None:
    job = app["fetch"].recur(1, cron="@daily")
    caller.begin()
    caller.execute("INSERT INTO subs VALUES (1, 'before')")
    kind = InvalidOption if sql == ANY_LEFT else Exception
    with pytest.raises(kind, match=r"(?i)syntax|nowhere|names :feed|near"):
        set_enabled(caller, job, sql, params)
    caller.execute("INSERT INTO subs VALUES (1, 'after')")
    assert set_enabled(caller, job, "(SELECT count(*) FROM subs) = 2")
    caller.commit()
    assert job.refresh().enabled


class Subscribers:
    """Two people with connections of their own, who act at the same moment, round after round."""

    def __init__(self, case: Case, url: str, app: Duly) -> None:
        self._case, self._url, self._app = case, url, app
        self._barrier = threading.Barrier(3)

    def race(self, rounds: int, *, second_joins: bool) -> list[tuple[bool, list[bool]]]:
        """Each round: the first leaves, the second leaves or joins. Returns what was left, and the answers."""
        job = self._app["fetch"].recur(1, cron="@daily")
        left = []
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(self._act, job, "ada", rounds, joins=False)
            second = pool.submit(self._act, job, "bob", rounds, joins=second_joins)
            for _ in range(rounds):
                present = ["ada"] if second_joins else ["ada", "bob"]
                by_hand(self._url, "DELETE FROM subs", *(f"INSERT INTO subs VALUES (1, '{who}')" for who in present))
                job.enable()
                self._barrier.wait(60)
                self._barrier.wait(60)
                left.append(job.refresh().enabled)
            answers = list(zip(first.result(), second.result(), strict=True))
        return [(enabled, list(answer)) for enabled, answer in zip(left, answers, strict=True)]

    def _act(self, job: RecurringJob, who: str, rounds: int, *, joins: bool) -> list[bool]:
        try:
            with closing(self._case.caller(self._url)) as caller:
                return [self._once(caller, job, who, joins=joins) for _ in range(rounds)]
        except BaseException:
            self._barrier.abort()
            raise

    def _once(self, caller: Caller, job: RecurringJob, who: str, *, joins: bool) -> bool:
        self._barrier.wait(60)
        caller.begin()
        caller.execute(f"INSERT INTO subs VALUES (1, '{who}')" if joins else f"DELETE FROM subs WHERE who = '{who}'")
        answer = set_enabled(caller, RecurringJob(self._app, job.id), ANY_LEFT, {"feed": 1})
        caller.commit()
        self._barrier.wait(60)
        return answer


@pytest.mark.requirement("A5")
def test_when_the_last_two_leave_at_once_it_is_always_disabled(app: Duly, case: Case, case_url: str) -> None:
    for enabled, answers in Subscribers(case, case_url, app).race(24, second_joins=False):
        assert not enabled
        assert sorted(answers) in ([False, True], [False, False])


@pytest.mark.requirement("A5")
def test_when_one_leaves_while_one_joins_it_is_always_enabled(app: Duly, case: Case, case_url: str) -> None:
    for enabled, answers in Subscribers(case, case_url, app).race(24, second_joins=True):
        assert enabled
        assert answers[1]


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.requirement("A5")
@pytest.mark.parametrize("joins", [False, True])
def test_a_thousand_rounds(app: Duly, case: Case, case_url: str, joins: bool) -> None:
    found = Subscribers(case, case_url, app).race(1_000, second_joins=joins)
    assert {enabled for enabled, _ in found} == {joins}


@pytest.mark.requirement("A5")
def test_at_a_stricter_level_one_of_two_is_refused_rather_than_wrong(pg_url: str, raw: Raw) -> None:
    """With one snapshot for the whole transaction the condition cannot see what the other did: it must not answer."""
    by_hand(pg_url, "CREATE TABLE subs (feed integer, who text)", "INSERT INTO subs VALUES (1, 'ada'), (1, 'bob')")
    with opened(pg_url) as jobs, psycopg.connect(pg_url) as one, psycopg.connect(pg_url) as two:

        @jobs.task
        def fetch() -> None: ...

        job = fetch.recur(1, cron="@daily")
        for connection in (one, two):
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        one.execute("DELETE FROM subs WHERE who = 'ada'")
        two.execute("DELETE FROM subs WHERE who = 'bob'")
        assert job.set_enabled(sql=ANY_LEFT, params={"feed": 1}, connection=one)
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            job.set_enabled(sql=ANY_LEFT, params={"feed": 1}, connection=two)
        two.rollback()
        two.execute("DELETE FROM subs WHERE who = 'bob'")
        assert not job.set_enabled(sql=ANY_LEFT, params={"feed": 1}, connection=two)
        two.commit()
        assert not job.refresh().enabled


@pytest.mark.requirement("A5")
def test_a_condition_without_a_connection_of_the_callers(jobs: Duly) -> None:
    @jobs.task
    def fetch() -> None: ...

    job = fetch.recur(1, cron="@daily")
    assert job.set_enabled(sql=":a < :b", params={"a": 1, "b": 2})
    assert not job.set_enabled(sql=":a < :b", params={"a": 2, "b": 1}, reason="no subscribers", by="ada")
    assert (job.disabled_reason, job.record.disabled_by) == ("no subscribers", "ada")
    with pytest.raises(InvalidOption, match=r"give either True or False, or a condition as sql="):
        job.set_enabled()
    with pytest.raises(InvalidOption, match=r"the SQL names :b, and it is given :a"):
        job.set_enabled(sql=":a < :b", params={"a": 1})
