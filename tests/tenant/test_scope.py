"""Through a tenant's handle nothing of another tenant is seen, counted or changed, by whatever method."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from duly import Conflict, Duly, InvalidOption, Job, JobNotFound, RecurringJob, RecurringJobNotFound, Tenant
from duly.domain.ids import uuid7
from duly.domain.records import NewJob
from tests.helpers import opened
from tests.tenant.world import LATER, World

Do = Callable[[Tenant, World], Any]


def own(name: str) -> Callable[[World], str]:
    return lambda world: world.acme.ids[name]


def fresh(world: World, tenant: str = "acme") -> NewJob:
    return NewJob(id=uuid7(), task="work", args='{"secret": "s"}', tenant=tenant)


def all_ids(world: World) -> list[str]:
    return [*world.acme.ids.values(), *world.globex.ids.values(), uuid7()]


ARGS = {"secret": "new"}
METHODS: dict[str, Do] = {
    "__getitem__": lambda t, w: [t["work"].enqueue(secret="s"), t[w.work].enqueue_many([ARGS])],
    "enqueue": lambda t, w: t.enqueue("work", ARGS, unique="same"),
    "aenqueue": lambda t, w: asyncio.run(t.aenqueue(w.work, ARGS, unique="same")),
    "enqueue_many": lambda t, w: t.enqueue_many("work", [ARGS, ARGS], unique="same"),
    "aenqueue_many": lambda t, w: asyncio.run(t.aenqueue_many("work", [ARGS, ARGS])),
    "submit": lambda t, w: t.submit(fresh(w), None),
    "asubmit": lambda t, w: None,  # takes a connection: see test_on_the_callers_connection
    "submit_many": lambda t, w: t.submit_many(fresh(w), [(uuid7(), '{"secret": "s"}', None)], None),
    "asubmit_many": lambda t, w: None,
    "get": lambda t, w: t.get(w.acme.ids["failed"]),
    "list": lambda t, w: [t.list(), t.list(tag="t"), t.list(text="secret"), t.list(task="work", queue="default")]
    + [t.list(state=s) for s in ("scheduled", "queued", "running", "succeeded", "failed", "cancelled", "disabled")],
    "counts": lambda t, w: t.counts(),
    "runs": lambda t, w: [t.runs(), t.runs(task="fail"), t.runs(task="nothing")],
    "why": lambda t, w: [t.why(w.acme.ids[each]).to_dict() for each in ("waiting", "running", "failed", "scheduled")],
    "why_waiting": lambda t, w: [each.to_dict() for each in t.why_waiting()],
    "standing": lambda t, w: t.standing(),
    "usage": lambda t, w: [t.usage(), t.usage(by="tenant,queue", period="day"), t.usage(task="work")],
    "audit": lambda t, w: [t.audit(), *(t.audit(job=each) for each in all_ids(w)), t.audit(by="boss of globex")],
    "cancel": lambda t, w: t.cancel(w.acme.ids["running"]),
    "cancel_many": lambda t, w: t.cancel_many(all_ids(w)),
    "retry": lambda t, w: t.retry(w.acme.ids["failed"]),
    "retry_many": lambda t, w: t.retry_many(all_ids(w)),
    "delete": lambda t, w: t.delete(w.acme.ids["succeeded"]),
    "delete_many": lambda t, w: t.delete_many(all_ids(w)),
    "set_state": lambda t, w: t.set_state(w.acme.ids["waiting"], "succeeded"),
    "set_priority": lambda t, w: t.set_priority(w.acme.ids["waiting"], 7),
    "boost": lambda t, w: t.boost(w.acme.ids["scheduled"]),
    "reschedule": lambda t, w: t.reschedule(w.acme.ids["recurring"], delay=60),
    "recur": lambda t, w: [t.recur(w.work, key, every="2h", args=ARGS) for key in ("same", "new")],
    "arecur": lambda t, w: asyncio.run(t.arecur("work", "same", every="2h", args=ARGS)),
    "recurring_job": lambda t, w: [t.recurring_job("work", "same"), t.recurring_job(w.work, "same").runs()],
    "recurring_by_id": lambda t, w: t.recurring_by_id(w.acme.ids["recurring"]),
    "recurring_by_name": lambda t, w: t.recurring_by_name("nightly"),
    "recurring_jobs": lambda t, w: [
        t.recurring_jobs(),
        t.recurring_jobs(task="work", limit=1),
        t.recurring_jobs(enabled=False),
        t.recurring_jobs(after=w.globex.handle.recurring_job("work", "off")),
    ],
    "register": lambda t, w: t.register("another", LATER, "1h", lambda: None),
    "unregister": lambda t, w: t.unregister("same"),
    "make_recurring": lambda t, w: t.make_recurring(t[w.work].new_recurring("made", every="1h", args=ARGS), None),
    "amake_recurring": lambda t, w: asyncio.run(
        t.amake_recurring(t[w.work].new_recurring("made", every="1h", args=ARGS), None)
    ),
    "change_recurring": lambda t, w: t.change_recurring(lambda ops: ops.find("acme", "work", "same"), None),
    "achange_recurring": lambda t, w: asyncio.run(
        t.achange_recurring(lambda ops: ops.find("acme", "work", "same"), None)
    ),
    "pause": lambda t, w: t.pause(reason="enough", by="me"),
    "resume": lambda t, w: t.resume(),
    "paused": lambda t, w: t.paused(),
    "weight": lambda t, w: t.weight(),
    "limits": lambda t, w: t.limits(),
    "acting_as": lambda t, w: t.acting_as("me"),
    "name": lambda t, w: t.name,
    "settings": lambda t, w: None,
    "registry": lambda t, w: None,
    "waiters": lambda t, w: None,
    "default_retry_data": lambda t, w: None,
    "store": lambda t, w: None,
}  # fmt: skip


def test_every_public_method_is_in_the_table() -> None:
    names = {name for name in dir(Tenant) if not name.startswith("_")} | {"__getitem__", "name", "store"}
    assert names == set(METHODS)


def test_no_method_takes_a_tenant() -> None:
    for name in METHODS.keys() - {"name", "store"}:
        method = inspect.getattr_static(Tenant, name)
        if not isinstance(method, property):
            assert "tenant" not in inspect.signature(method).parameters, name


@pytest.mark.requirement("E9")
@pytest.mark.parametrize("name", METHODS)
def test_nothing_of_another_tenant_is_seen_or_changed(world: World, name: str) -> None:
    before = world.rows_of("globex")
    answer = METHODS[name](world.acme.handle, world)
    assert world.rows_of("globex") == before
    shown = shown_by(answer)
    assert world.globex.secret not in shown
    assert "globex" not in shown.replace(*asked_with(name))
    seen = {each for each in world.globex.ids.values() if each in shown}
    assert seen <= (set(world.globex.ids.values()) if name.endswith("_many") else set())  # refused, by name


def asked_with(name: str) -> tuple[str, str]:
    """What the test itself put into the question, and may come back."""
    return ("boss of globex", "") if name == "audit" else ("\0", "\0")


def shown_by(answer: object) -> str:
    """All that an answer shows, in one text."""
    match answer:
        case list() | tuple():
            return " ".join(map(shown_by, answer)) + repr(answer)
        case Job():
            parts = [answer.to_dict(), [run.to_dict() for run in answer.runs], answer.last_error, answer.refresh()]
            return " ".join(map(repr, parts))
        case RecurringJob():
            return f"{answer!r} {answer.refresh().to_dict()!r} {[run.to_dict() for run in answer.runs()]!r}"
        case _ if hasattr(answer, "to_dict"):
            return repr(answer.to_dict())
        case _:
            return repr(answer)


# -- by id ------------------------------------------------------------------------------------------------------------

BY_ID: dict[str, Callable[[Tenant, str], Any]] = {
    "get": lambda t, i: t.get(i),
    "cancel": lambda t, i: t.cancel(i, "why"),
    "retry": lambda t, i: t.retry(i),
    "delete": lambda t, i: t.delete(i),
    "set_state queued": lambda t, i: t.set_state(i, "queued"),
    "set_state succeeded": lambda t, i: t.set_state(i, "succeeded"),
    "set_state failed": lambda t, i: t.set_state(i, "failed"),
    "set_state cancelled": lambda t, i: t.set_state(i, "cancelled"),
    "set_priority": lambda t, i: t.set_priority(i, 9),
    "boost": lambda t, i: t.boost(i),
    "reschedule": lambda t, i: t.reschedule(i, delay=60),
    "cancel_many": lambda t, i: t.cancel_many([i]),
    "retry_many": lambda t, i: t.retry_many([i]),
    "delete_many": lambda t, i: t.delete_many([i]),
    "audit": lambda t, i: t.audit(job=i),
    "recurring_by_id": lambda t, i: t.recurring_by_id(i),
    "recurring refresh": lambda t, i: RecurringJob(t, i).refresh(),
    "recurring enable": lambda t, i: RecurringJob(t, i).enable(),
    "recurring aenable": lambda t, i: asyncio.run(RecurringJob(t, i).aenable()),
    "recurring disable": lambda t, i: RecurringJob(t, i).disable("no"),
    "recurring set_enabled": lambda t, i: RecurringJob(t, i).set_enabled(sql="1 = 1"),
    "recurring run_now": lambda t, i: RecurringJob(t, i).run_now(),
    "recurring reschedule": lambda t, i: RecurringJob(t, i).reschedule(LATER),
    "recurring edit": lambda t, i: RecurringJob(t, i).edit(every="3h"),
    "recurring delete": lambda t, i: RecurringJob(t, i).delete(),
    "recurring runs": lambda t, i: RecurringJob(t, i).runs(),
    "job refresh": lambda t, i: Job(t, i).refresh(),
    "job wait": lambda t, i: Job[Any](t, i).wait(1),
    "job result": lambda t, i: Job[Any](t, i).result(),
    "job await": lambda t, i: asyncio.run(awaited(Job(t, i))),
    "job runs": lambda t, i: Job(t, i).runs,
    "job last_error": lambda t, i: Job(t, i).last_error,
    "job duration": lambda t, i: Job(t, i).duration,
    "job started_at": lambda t, i: Job(t, i).started_at,
    "job updated_at": lambda t, i: Job(t, i).updated_at,
    "job cancel": lambda t, i: Job(t, i).cancel(),
    "job retry": lambda t, i: Job(t, i).retry(),
}


async def awaited(job: Job[Any]) -> Any:
    return await job


def answer_of(do: Callable[[Tenant, str], Any], tenant: Tenant, job_id: str) -> str:
    try:
        answer = do(tenant, job_id)
    except Exception as error:
        answer = (type(error), str(error))
    return repr(answer).replace(job_id, "ID")


@pytest.mark.requirement("E9")
def test_a_job_of_another_tenant_answers_like_one_that_never_was(world: World) -> None:
    acme, before = world.acme.handle, (world.rows_of("acme"), world.rows_of("globex"))
    for verb, do in BY_ID.items():
        unknown = answer_of(do, acme, uuid7())
        for what, job_id in world.globex.ids.items():
            assert answer_of(do, acme, job_id) == unknown, (verb, what)
    assert (world.rows_of("acme"), world.rows_of("globex")) == before


@pytest.mark.requirement("E9")
def test_it_costs_one_probe_to_learn_that_a_job_is_not_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by time nobody learns whether an id is another's: the same statements are asked."""
    asked: list[str] = []
    database: Any = world.jobs.store.database
    write = database.write

    def watched(op: Callable[[], Any], **how: Any) -> Any:
        def watching() -> Any:
            run = op()
            rows = None
            while True:
                try:
                    call = run.send(rows)
                except StopIteration as stop:
                    return stop.value
                if call.name != "notify":  # from a thread of its own, whenever
                    asked.append(call.name)
                rows = yield call

        return write(watching, **how)

    monkeypatch.setattr(database, "write", watched)
    for verb in ("cancel", "retry", "delete", "cancel_many", "retry_many", "delete_many", "set_state failed"):
        answer_of(BY_ID[verb], world.acme.handle, uuid7())
        unknown, asked[:] = list(asked), []
        answer_of(BY_ID[verb], world.acme.handle, world.globex.ids["waiting"])
        foreign, asked[:] = list(asked), []
        assert unknown == foreign, verb
        first = next(name for name in unknown if name != "wanted_keys")  # that one only says in which order to go
        assert first == "is_of_tenant", verb


@pytest.mark.requirement("E9")
def test_single_verbs_raise_job_not_found(world: World) -> None:
    acme = world.acme.handle
    for verb in ("get", "cancel", "retry", "delete", "set_priority", "boost", "reschedule", "set_state failed"):
        for job_id in world.globex.ids.values():
            with pytest.raises(JobNotFound):
                BY_ID[verb](acme, job_id)
    with pytest.raises(RecurringJobNotFound):
        acme.recurring_job("work", "only here")


# -- what is its own --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("E9")
def test_lists_and_counts_are_whole_for_what_is_its_own(world: World) -> None:
    for owned in (world.acme, world.globex):
        tenant, ids = owned.handle, owned.ids
        listed: dict[str, set[str]] = {}
        for job in tenant.list():
            listed.setdefault(str(job.state), set()).add(job.id)
        assert listed == {
            "succeeded": {ids["succeeded"]},
            "failed": {ids["failed"]},
            "cancelled": {ids["cancelled"]},
            "queued": {ids["waiting"]},
            "running": {ids["running"]},
            "scheduled": {ids["scheduled"], ids["recurring"], ids["registered"]},
            "disabled": {ids["disabled"]},
        }
        for state, expected in listed.items():
            assert {job.id for job in tenant.list(state=state)} == expected
        counts = tenant.counts()
        assert [row[:4] for row in counts.waiting] == [("default", tenant.name, "work", 1)]
        assert [row[:4] for row in counts.running] == [("default", tenant.name, "hold", 1)]
        assert sum(row[3] for row in counts.scheduled) == 3
        assert counts.ended == {"succeeded": 1, "failed": 1, "cancelled": 1}
        assert {run.job_id for run in tenant.runs()} == {ids["succeeded"], ids["failed"]}
        assert [run.outcome for run in tenant.runs(task="fail")] == ["failed"]
        assert [(each.task, each.runs) for each in tenant.usage()] == [("fail", 1), ("work", 1)]
        assert {each.job_id for each in tenant.audit(action="boost")} == {ids["waiting"]}
        assert {each.who for each in tenant.audit(action="boost")} == {f"boss of {tenant.name}"}
        assert tenant.weight() == 3
        assert [(limit.gate, limit.says.slots) for limit in tenant.limits()] == [(("tenant", tenant.name), 5)]
        assert [job.id for job in tenant.recurring_jobs(task="work")] == [ids["disabled"], ids["recurring"]]
        assert tenant.get(ids["succeeded"]).wait(1) == owned.secret
        standing = tenant.standing()
        assert (standing.waiting, standing.running, standing.parked, standing.paused_at) == (1, 1, 0, None)
    assert {each.name for each in world.jobs.tenants()} == {"acme", "globex"}
    assert [each.name for each in world.jobs.tenants(after="acme")] == ["globex"]


@pytest.mark.requirement("E9")
def test_pages_are_full_though_others_jobs_lie_between(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    for n in range(30):
        for tenant in ("acme", "globex", "initech"):
            jobs.tenant(tenant).enqueue(work, {"n": n}, delay="1h" if n % 3 == 0 else None)
    acme = jobs.tenant("acme")
    seen, before = list[int](), None
    while page := acme.list(limit=7, before=before):
        assert len(page) == 7 or len(seen) + len(page) == 30
        seen += [job.args["n"] for job in page]
        before = page[-1].id
    assert seen == list(range(29, -1, -1))
    assert [job.args["n"] for job in acme.list(limit=5, offset=3)] == [26, 25, 24, 23, 22]
    assert [job.args["n"] for job in acme.list(state="queued", limit=3, offset=1)] == [28, 26, 25]
    assert [job.args["n"] for job in acme.list(state="scheduled", limit=2)] == [27, 24]


@pytest.mark.requirement("E9")
def test_the_same_unique_key_and_the_same_recurring_key_are_two_jobs(world: World) -> None:
    acme, globex = world.acme, world.globex
    assert acme.ids["waiting"] != globex.ids["waiting"]
    again = acme.handle.enqueue("work", ARGS, unique="same")
    assert (again.id, again.created) == (acme.ids["waiting"], False)
    assert acme.handle.recurring_job("work", "same").id == acme.ids["recurring"]
    acme.handle.recurring_by_name("nightly").delete()
    assert globex.handle.recurring_by_name("nightly").id == globex.ids["recurring"]


@pytest.mark.requirement("E9")
def test_pausing_itself_pauses_nothing_else(world: World) -> None:
    acme, globex = world.acme.handle, world.globex.handle
    with acme.acting_as("alice"):
        acme.pause(reason="not paid", duration="1h")
    paused = acme.paused()
    assert paused is not None
    assert (paused.scope, paused.name, paused.by, paused.reason) == ("tenant", "acme", "alice", "not paid")
    assert globex.paused() is None
    assert acme.standing().paused_at is not None
    assert [each.who for each in acme.audit(action="pause")] == ["alice"]
    assert globex.audit(action="pause") == []
    assert acme.resume() is True
    assert acme.resume() is False
    assert len(acme.audit(action="resume")) == 1


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("E9")
@pytest.mark.parametrize("other", ["globex", ""])
def test_another_tenant_is_refused_at_enqueue(world: World, other: str) -> None:
    acme, before = world.acme.handle, world.rows_of("globex")
    n = world.raw.count("jobs")
    refused: list[Callable[[], object]] = [
        lambda: acme.enqueue("work", ARGS, tenant=other),
        lambda: asyncio.run(acme.aenqueue("work", ARGS, tenant=other)),
        lambda: acme.enqueue_many("work", [ARGS], tenant=other),
        lambda: asyncio.run(acme.aenqueue_many("work", [ARGS], tenant=other)),
        lambda: acme["work"].using(tenant=other).enqueue(secret="s"),
        lambda: acme["work"].using(tenant=other).recur("k", every="1h", args=ARGS),
        lambda: acme.recur("work", "k", every="1h", args=ARGS, tenant=other),
        lambda: asyncio.run(acme.arecur("work", "k", every="1h", args=ARGS, tenant=other)),
        lambda: acme.register("x", LATER, "1h", lambda: None, tenant=other),
        lambda: acme.submit(fresh(world, other), None),
        lambda: acme.submit_many(fresh(world, other), [(uuid7(), "{}", None)], None),
    ]
    for refuse in refused:
        with pytest.raises(InvalidOption, match="handle of tenant 'acme'"):
            refuse()
    assert world.raw.count("jobs") == n
    assert world.rows_of("globex") == before
    assert acme.enqueue("work", ARGS, tenant="acme").tenant == "acme"


def test_nobody_has_no_handle_and_a_task_of_another_application_is_refused(jobs: Duly, database_url: str) -> None:
    with pytest.raises(InvalidOption, match="must not be empty"):
        jobs.tenant("")
    with pytest.raises(InvalidOption):
        jobs.tenant("a\0b")
    with opened(database_url) as other:
        task = other.task(test_it_says_whose_it_is)
        with pytest.raises(Exception, match="another Duly"):
            jobs.tenant("acme")[task]


def test_it_says_whose_it_is(jobs: Duly) -> None:
    acme = jobs.tenant("acme")
    assert repr(acme) == "<Tenant 'acme'>"
    assert acme == jobs.tenant("acme") != jobs.tenant("globex")
    assert len({acme, jobs.tenant("acme")}) == 1


def test_the_own_verbs_work_through_jobs_that_it_gives_out(world: World) -> None:
    acme = world.acme.handle
    job = acme.get(world.acme.ids["waiting"])
    assert job.cancel("no more") == "cancelled"
    job.refresh().retry()
    assert str(job.refresh().state) == "queued"
    recurring = acme.recurring_job("work", "same")
    recurring.disable()
    assert not recurring.enabled
    recurring.enable()
    acme.retry(recurring.id)  # a recurring job is run now
    with pytest.raises(Conflict):
        acme.cancel(world.acme.ids["recurring"])
    acme.delete(recurring.id)
    with pytest.raises(RecurringJobNotFound):
        recurring.refresh()
