"""Lists over HTTP: every filter, pages by cursor that neither miss nor repeat, and a bounded cost among many jobs."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from duly import Duly
from duly.domain.records import Filter, Page
from duly.domain.states import State
from duly.store import ops_lists
from duly.store.call import Call, Dialect, Op
from duly.store.statements import Compiled
from duly.web.service import filters
from tests.stepping import watched
from tests.store.raw import Raw
from tests.web.browser import Browser

JOBS = "/api/admin/jobs"


def ids_of(api: Browser, **params: Any) -> list[str]:
    return [job["id"] for job in api.ok(api.get(JOBS, **params))["items"]]


def all_pages(api: Browser, **params: Any) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        page = api.ok(api.get(JOBS, **params, **({} if cursor is None else {"cursor": cursor})))
        pages.append([job["id"] for job in page["items"]])
        cursor = page["next_cursor"]
        if cursor is None:
            return pages


@pytest.mark.requirement("C9")
def test_each_filter_finds_its_own(api: Browser, jobs: Duly) -> None:
    plain = jobs["add"].enqueue(1).id
    mail = jobs["send"].enqueue("ann").id
    acme = jobs["add"].using(tenant="acme").enqueue(77).id
    tagged = jobs["add"].using(tags=["red", 'say "hi"']).enqueue(2).id
    jobs.cancel(plain)
    assert ids_of(api, task="send") == [mail]
    assert ids_of(api, queue="mail") == [mail]
    assert ids_of(api, tenant="acme") == [acme]
    assert ids_of(api, tag="red") == ids_of(api, tag='say "hi"') == [tagged]
    assert ids_of(api, tag="re") == []
    assert ids_of(api, text="77") == [acme]
    assert ids_of(api, text='"to":"ann"') == [mail]
    assert ids_of(api, text="%") == ids_of(api, text="_nn") == []
    assert ids_of(api, status="cancelled") == ids_of(api, state="cancelled") == [plain]
    assert ids_of(api, task="add", tenant="acme", text="77", state="queued") == [acme]
    assert ids_of(api, task="add", tenant="acme", text="78") == []


def test_jobs_are_found_by_when_they_were_made(api: Browser, jobs: Duly) -> None:
    first = jobs["add"].enqueue(1).id
    between = datetime.now(UTC) + timedelta(milliseconds=2)
    while datetime.now(UTC) < between + timedelta(milliseconds=2):
        pass
    second = jobs["add"].enqueue(2).id
    assert ids_of(api, since=between.isoformat()) == [second]
    assert ids_of(api, until=between.isoformat()) == [first]
    assert ids_of(api, since="1h") == [second, first]
    assert ids_of(api, until="1h") == []
    assert ids_of(api, since=(between - timedelta(hours=1)).isoformat(), until=between.isoformat(), state="queued") == [
        first
    ]


def test_jobs_that_ended_are_found_by_when_they_did(api: Browser, jobs: Duly) -> None:
    first, second = jobs["add"].enqueue(1), jobs["add"].enqueue(2)
    second.cancel()
    first.cancel()
    ended = {job.id: job.refresh().finished_at for job in (first, second)}
    at = ended[first.id]
    assert at is not None
    assert ids_of(api, state="cancelled") == [first.id, second.id]
    assert ids_of(api, state="cancelled", since=at.isoformat()) == [first.id]
    assert ids_of(api, state="cancelled", until=at.isoformat()) == [second.id]


@pytest.mark.parametrize("state", [None, "queued", "scheduled", "cancelled"])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_by_cursor_neither_miss_nor_repeat(lite_api: Browser, lite: Duly, state: str | None, limit: int) -> None:
    made = [lite["add"].enqueue(n) for n in range(7)]
    if state == "scheduled":
        made = [lite["add"].using(delay=60 + n).enqueue(n) for n in range(7)]
    if state == "cancelled":
        for job in made:
            job.cancel()
    params = {} if state is None else {"state": state}
    pages = all_pages(lite_api, limit=limit, **params)
    found = [each for page in pages for each in page]
    expected = list(reversed([job.id for job in made]))
    assert found[: len(expected)] == expected
    assert len(found) == len(set(found))


def test_a_page_does_not_change_when_jobs_leave_or_come(api: Browser, jobs: Duly) -> None:
    made = [jobs["add"].enqueue(n) for n in range(6)]
    for job in made:
        job.cancel()
    first = api.ok(api.get(JOBS, state="cancelled", limit=3))
    jobs.delete(first["items"][-1]["id"])  # the one that the cursor names
    jobs["add"].enqueue(99).cancel()
    second = api.ok(api.get(JOBS, state="cancelled", limit=10, cursor=first["next_cursor"]))
    assert [job["id"] for job in second["items"]] == [job.id for job in reversed(made[:3])]


@pytest.mark.parametrize("state", [None, "queued", "cancelled"])
def test_a_search_looks_at_so_many_and_says_so(
    api: Browser, jobs: Duly, state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "LOOK", 10)
    old = jobs["add"].enqueue(7777)
    others = [jobs["add"].enqueue(n) for n in range(25)]
    if state == "cancelled":
        for job in (old, *others):
            job.cancel()
    params = {"text": "7777", **({} if state is None else {"state": state})}
    page = api.ok(api.get(JOBS, **params))
    assert (page["items"], page["complete"], page["looked_at"]) == ([], False, 10)
    pages = all_pages(api, **params)
    assert pages == [[], [], [old.id]]
    assert api.ok(api.get(JOBS, state="queued"))["complete"] is True


@pytest.mark.parametrize("state", [None, "queued", "scheduled", "cancelled"])
@pytest.mark.parametrize(
    "fits", [{"task": "add"}, {"queue": "mine"}, {"tenant": "acme"}, {"tag": "red"}, {"task": "add", "tenant": "acme"}]
)
def test_a_search_looks_at_the_newest_that_fit_the_other_filters(
    api: Browser, jobs: Duly, state: str | None, fits: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "LOOK", 10)
    delay = "1h" if state == "scheduled" else None
    mine = jobs["add"].using(queue="mine", tenant="acme", tags=["red"], delay=delay)
    other = jobs["send"].using(delay=delay)
    made = []
    for n in range(24):  # most are others'
        made += [mine.enqueue(7777 if n in (9, 23) else n), *(other.enqueue(f"7777-{k}") for k in range(3))]
    if state == "cancelled":
        for job in made:
            job.cancel()
    first, last = made[9 * 4].id, made[23 * 4].id
    params = {"text": "7777", **fits, **({} if state is None else {"state": state})}
    page = api.ok(api.get(JOBS, **params))
    assert [job["id"] for job in page["items"]] == [last]
    assert (page["complete"], page["looked_at"]) == (False, 10)
    second = api.ok(api.get(JOBS, **params, cursor=page["next_cursor"]))  # the 11th to the 20th that fit
    assert [job["id"] for job in second["items"]] == [first]
    assert (second["complete"], second["looked_at"]) == (False, 10)
    third = api.ok(api.get(JOBS, **params, cursor=second["next_cursor"]))
    assert (third["items"], third["complete"], third["looked_at"], third["next_cursor"]) == ([], True, 4, None)
    assert ids_of(api, **params, limit=1) == [last]
    assert ids_of(api, **{**params, "text": "7778"}) == []


def test_a_search_passes_so_many_that_do_not_fit_and_no_more(
    api: Browser, jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "WALK", 5)
    old = jobs["add"].enqueue(7777)
    for n in range(12):
        jobs["send"].enqueue(f"{n}")
    page = api.ok(api.get(JOBS, state="queued", task="add", text="7777"))
    assert (page["items"], page["complete"], page["looked_at"]) == ([], False, 0)
    assert [len(each) for each in all_pages(api, state="queued", task="add", text="7777")] == [0, 0, 1]
    assert ids_of(api, task="add", text="7777") == [old.id]  # of any state it passes more


def test_what_is_parked_and_what_waits_are_one_list(api: Browser, jobs: Duly, raw: Raw, monkeypatch: Any) -> None:
    made = [jobs["add"].enqueue(n) for n in range(12)]
    for job in made[::3]:
        raw.rows(
            "INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, parked_at, reason)"
            f" SELECT id, queue, tenant, task, run_at, priority, 0, 'arguments' FROM duly.waiting WHERE id = '{job.id}'"
        )
        raw.rows(f"DELETE FROM duly.waiting WHERE id = '{job.id}'")
    expected = [job.id for job in reversed(made)]
    for limit in (1, 5, 100):
        assert [each for page in all_pages(api, state="queued", limit=limit) for each in page] == expected
    assert ids_of(api, state="queued", limit=5, offset=4) == expected[4:9]
    monkeypatch.setattr(filters, "LOOK_FEW", 3)
    assert [each for page in all_pages(api, state="queued", task="add", limit=5) for each in page] == expected


# -- many -------------------------------------------------------------------------------------------------------------

MANY = 30_000


def fill(raw: Raw) -> None:
    """Many jobs of a frequent and a rare task that ended, and as many that wait."""
    numbers = f"generate_series(1, {2 * MANY}) AS i" if raw.is_postgres else "n"
    first = (
        ""
        if raw.is_postgres
        else f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {2 * MANY})"
    )
    job_id = (
        "('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid"
        if raw.is_postgres
        else "'00000000-0000-7000-8000-' || printf('%012d', i)"
    )
    task = "CASE WHEN i % 1000 = 0 THEN 'rare' ELSE 'add' END"
    raw.rows(
        "INSERT INTO duly.jobs (id, task, queue, tenant, args, created_at)"
        f" {first} SELECT {job_id}, {task}, 'default', 'acme', '{{\"x\":1}}', i FROM {numbers}"
    )
    raw.rows(
        "INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes)"
        f" {first} SELECT {job_id}, 'succeeded', i / 3, 1, 1, 0 FROM {numbers} WHERE i <= {MANY}"
    )
    raw.rows(
        "INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority)"
        f" {first} SELECT 'default', 'acme', {task}, i, {job_id}, i, 0 FROM {numbers} WHERE i > {MANY}"
    )


def _watched_page(dialect: Dialect, wanted: Filter, calls: list[Call]) -> Op[Page]:
    return watched(ops_lists.page(dialect, wanted), calls)


@pytest.mark.requirement("C9")
def test_pages_among_many_are_stretches_of_an_index(jobs: Duly, raw: Raw) -> None:
    fill(raw)
    if raw.is_postgres:
        raw.rows("ANALYZE")
    calls: list[Call] = []
    for state in (None, State.QUEUED, State.SUCCEEDED):
        for wanted in (
            Filter(state=state, limit=10),
            Filter(state=state, limit=10, task="rare", look=5_000),
            Filter(state=state, limit=10, text="nothing", tenant="acme", look=5_000),
            Filter(state=state, limit=10, text="nothing", look=5_000),
            Filter(state=state, limit=10, text="nothing", task="add", look=5_000),
        ):
            page = jobs.store.database.read(partial(_watched_page, jobs.store.dialect, wanted, calls))
            if wanted.task == "rare":
                assert [job.task for job in page.jobs] == ["rare"] * 5
            if wanted.text:
                assert (page.jobs, page.looked) == ([], 5_000)
                following = page.following
                assert following is not None
    plans = (explain_postgres if raw.is_postgres else explain_sqlite)(jobs.settings.url, calls)
    assert {name for name, _ in plans} >= {"search_jobs_of_tenant", "search_waiting", "search_ended"}
    for name, plan in plans:
        if name.endswith("parked"):
            continue  # there are none
        if name.startswith("search_"):
            check_search(name, plan)
            continue
        # Of what ended in the same microsecond, the index does not know the order.
        amiss = r"Seq Scan on (jobs|ended|waiting)\b|(?<!Incremental )Sort  \(|TEMP B-TREE|SCAN .*duly_(?!parked)"
        assert not re.search(amiss, plan), (name, plan)
        assert not re.search(r"SCAN [a-z](?! USING)", plan) or name == "jobs_of", (name, plan)


def check_search(name: str, plan: str) -> None:
    """What a search passes is a stretch of an index, each job asked for by key; only what fitted may be sorted."""
    index = {"search_jobs_of_tenant": "jobs_by_tenant", "search_jobs": "jobs_pkey", "search_ended": "ended_by_state"}
    assert not re.search(r"Seq Scan on (jobs|ended|waiting)\b|SCAN [ej]\b(?! USING)", plan), (name, plan)
    assert index.get(name, "") in plan or ("PRIMARY KEY" in plan and name == "search_jobs"), (name, plan)
    for part in re.findall(r"(?<!Incremental )Sort  .*\n.*\n.*", plan):
        assert "CTE Scan on f" in part, (name, plan)


def explain_postgres(url: str, calls: list[Call]) -> list[tuple[str, str]]:
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    plans = []
    with psycopg.connect(url, options="-c plan_cache_mode=force_generic_plan") as connection:
        for call in calls:
            sql, order = compiled.get(call.name)
            rows = connection.execute(("EXPLAIN " + sql).encode(), {name: call.params[name] for name in order})
            plans.append((call.name, "\n".join(str(row[0]) for row in rows.fetchall())))
    return plans


def explain_sqlite(url: str, calls: list[Call]) -> list[tuple[str, str]]:
    compiled = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False)
    plans = []
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        for call in calls:
            sql, order = compiled.get(call.name)
            params: Any = tuple(call.params[name] for name in order)
            rows = connection.execute("EXPLAIN QUERY PLAN " + sql, params).fetchall()
            plans.append((call.name, "\n".join(str(row[3]) for row in rows)))
    return plans
