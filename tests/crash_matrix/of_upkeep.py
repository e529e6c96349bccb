"""Operations that keep the house: promote, prune, add up, audit, tokens, alerts, repairs, migrations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duly.domain.alerts import Decisions, Reading
from duly.domain.principal import TokenRecord
from duly.domain.states import State
from duly.store import ops_alerts, ops_repair, ops_tokens
from duly.store.call import Call, Op
from duly.store.ops_doctor import Partial
from tests.crash_matrix.of_jobs import BOSS, HOUR, ended, job, let_in
from tests.crash_matrix.of_recurring import made
from tests.crash_matrix.operation import Act, Table
from tests.crash_matrix.world import World, new_id

TABLE = Table()
DAY = 24 * HOUR
ON_RECORD = "what was done is on record twice"


def nothing(world: World) -> None:
    """There is nothing to arrange."""


def running(op: Callable[[World], Op[Any]]) -> Act:
    """Run an operation that has no method of its own."""
    return lambda world: world.store.run(lambda: op(world))


# -- upkeep -----------------------------------------------------------


def come_due(world: World) -> None:
    world.make.enqueue(delay_us=1_000_000)
    world.make.enqueue(delay_us=1_000_000, limit_key="send/a")
    world.clock.advance(2)


def old(world: World) -> None:
    ended()(world)
    let_in(world)
    world.store.cancel(world.id, "why")
    world.make.unique("spent", scope="window", unique_window_us=1_000)
    assert world.raw is not None
    world.raw.rows("INSERT INTO duly.keys (name, tries, failures, counting_since) VALUES ('send/counted', 3, 1, 1)")
    world.store.add_worker(new_id(), world_process(), lease_us=1, queues="", tasks="", slots=1, wake=None, version="1")
    world.clock.advance(90 * 24 * 3600)
    ended()(world)


def world_process() -> Any:
    from tests.crash_matrix.of_workers import PROCESS

    return PROCESS


TABLE.add("promote", "Store.promote", come_due, lambda world: world.store.promote())
TABLE.add(
    "prune jobs",
    "Store.prune_jobs",
    old,
    lambda world: world.store.prune_jobs(State.FAILED, DAY, actor=BOSS),
    step="prune_jobs",
)
TABLE.add("prune the rest", "Store.prune_rest", old, lambda world: world.store.prune_rest(DAY))
TABLE.add("add up an hour", "Store.add_up_hour", old, lambda world: world.store.add_up_hour(DAY))
TABLE.add(
    "set horizon", "Store.set_horizon", nothing, lambda world: world.store.set_horizon("default", HOUR, actor=BOSS)
)


def old_audit(world: World) -> None:
    job()(world)
    world.store.cancel(world.id, "why", actor=BOSS)
    world.clock.advance(90 * 24 * 3600)


TABLE.add("prune the audit", "Store.prune_audit", old_audit, lambda world: world.store.prune_audit(DAY))


# -- tokens -----------------------------------------------------------


def token(world: World) -> None:
    world.kept["token"] = TokenRecord(new_id(), "token", "ann", "read", None, 0, "boss", None, None)


def kept_token(world: World) -> None:
    token(world)
    add_token(world)


add_token = running(lambda world: ops_tokens.add(world.kept["token"], "a hash", HOUR, actor=BOSS))
TABLE.add("add a token", "Store.run ops_tokens.add", token, add_token)
TABLE.add(
    "remove a token",
    "Store.run ops_tokens.remove",
    kept_token,
    running(lambda world: ops_tokens.remove(world.kept["token"].id, actor=BOSS)),
)


def use(world: World) -> Op[object]:
    return (yield Call("use_token", {"id": world.kept["token"].id}))


TABLE.add("use a token", "Store.run", kept_token, running(use))


# -- alerts -----------------------------------------------------------

DEEP = Reading("depth", "default", 9.0, 5.0, "9 jobs wait", details={"n": 9})


def turn(world: World) -> None:
    world.kept["turn"] = world.store.run(lambda: ops_alerts.take_turn("me", HOUR))


def alert(world: World) -> None:
    turn(world)
    started = Decisions([(DEEP, True)], [], [], [])
    world.store.run(lambda: ops_alerts.write_down(world.kept["turn"], started))
    [world.kept["alert"]] = world.store.run(ops_alerts.active)


def alerts(world: World) -> None:
    """One that calms, one that ends, one that goes on."""
    turn(world)
    readings = [DEEP._replace(subject=name) for name in ("a", "b", "c")]
    world.store.run(
        lambda: ops_alerts.write_down(world.kept["turn"], Decisions([(each, True) for each in readings], [], [], []))
    )
    world.kept["alerts"] = sorted(world.store.run(ops_alerts.active), key=lambda each: each.subject)


def decide(world: World) -> Op[object]:
    a, b, c = world.kept["alerts"]
    decisions = Decisions([(DEEP, True)], [(a, DEEP._replace(subject="a", value=11.0), True)], [b], [c])
    return (yield from ops_alerts.write_down(world.kept["turn"], decisions))


def notice(world: World) -> None:
    alert(world)
    world.kept["notice"] = world.store.run(lambda: ops_alerts.take_notice("log", HOUR))


def old_alerts(world: World) -> None:
    alert(world)
    world.store.run(lambda: ops_alerts.write_down(world.kept["turn"], Decisions([], [], [], [world.kept["alert"]])))
    world.store.run(lambda: ops_alerts.silence("depth", None, HOUR, reason="why", actor=BOSS))
    taken = world.store.run(lambda: ops_alerts.take_notice("log", 1))
    assert taken is not None
    world.store.run(lambda: ops_alerts.notice_done(taken.id))
    world.clock.advance(90 * 24 * 3600)


def silenced(world: World) -> None:
    world.store.run(lambda: ops_alerts.silence("depth", None, HOUR, reason="why", actor=BOSS))


TABLE.add(
    "alerts: take the turn",
    "Store.run ops_alerts.take_turn",
    nothing,
    running(lambda world: ops_alerts.take_turn("me", HOUR)),
)
TABLE.add(
    "alerts: rest",
    "Store.run ops_alerts.rest",
    turn,
    running(lambda world: ops_alerts.rest(world.kept["turn"], 2 * HOUR)),
)
TABLE.add("alerts: write down", "Store.run ops_alerts.write_down", alerts, running(decide))
TABLE.add(
    "alerts: take a notice",
    "Store.run ops_alerts.take_notice",
    alerts,
    running(lambda world: ops_alerts.take_notice("log", HOUR)),
    twice="the notice whose answer was lost is told when its lease is over",
)
TABLE.add(
    "alerts: a notice is done",
    "Store.run ops_alerts.notice_done",
    notice,
    running(lambda world: ops_alerts.notice_done(world.kept["notice"].id)),
)
TABLE.add(
    "alerts: a notice is tried again",
    "Store.run ops_alerts.notice_again",
    notice,
    running(lambda world: ops_alerts.notice_again(world.kept["notice"].id, HOUR, "no")),
)
TABLE.add(
    "alerts: forget",
    "Store.run ops_alerts.forget",
    old_alerts,
    running(lambda world: ops_alerts.forget(unserved_us=HOUR, keep_us=HOUR)),
)
TABLE.add(
    "alerts: silence",
    "Store.run ops_alerts.silence",
    nothing,
    running(lambda world: ops_alerts.silence("depth", None, HOUR, reason="why", actor=BOSS)),
    twice=ON_RECORD,
)
TABLE.add(
    "alerts: unsilence",
    "Store.run ops_alerts.unsilence",
    silenced,
    running(lambda world: ops_alerts.unsilence("depth", None, actor=BOSS)),
)
TABLE.add(
    "alerts: acknowledge",
    "Store.run ops_alerts.acknowledge",
    alert,
    running(lambda world: ops_alerts.acknowledge(world.kept["alert"].id, actor=BOSS)),
)


# -- repairs -----------------------------------------------------------


def breaking(arrange: Callable[[World], object], *statements: str) -> Callable[[World], None]:
    """What never should be, made by hand."""

    def arranged(world: World) -> None:
        arrange(world)
        assert world.raw is not None
        for statement in statements:
            world.raw.rows(statement.replace("$ID", world.id))

    return arranged


def ran(world: World) -> None:
    world.make.unique()
    run = world.make.take()
    assert world.make.finish(run, "failed")
    world.kept["id"] = run.id


def unique(world: World) -> None:
    world.kept["id"] = world.make.unique().id


def behind(world: World) -> None:
    world.make.unique()
    world.make.take()
    world.kept["id"] = world.make.unique(mode="keep_latest").id


def for_a_time(world: World) -> None:
    world.kept["id"] = world.make.unique(scope="window", unique_window_us=HOUR).id


def behind_nobody(world: World) -> None:
    behind(world)
    assert world.raw is not None
    for statement in ("unique_keys", "running", f"jobs WHERE id <> '{world.id}'"):
        world.raw.rows(f"DELETE FROM duly.{statement}")


def parked(world: World) -> None:
    world.make.unique()
    run = world.make.take()
    world.store.park(run.id, run.token, reason="arguments", detail="", mark="v1")
    world.kept["id"] = run.id


def unique_running(world: World) -> None:
    world.make.unique()
    world.kept["id"] = world.make.take().id


def taken_over(arrange: Callable[[World], object]) -> Callable[[World], None]:
    """Another has the key that a job counts on."""

    def arranged(world: World) -> None:
        breaking(arrange, "DELETE FROM duly.unique_keys")(world)
        assert world.make.unique().created

    return arranged


def repair(fix: Callable[[World], Op[Any]]) -> Act:
    return running(fix)


COPY_TO_SCHEDULED = (
    "INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, token, attempt, crashes, hold)"
    " SELECT id, run_at, queue, tenant, task, priority, token, attempt, crashes, hold FROM duly.waiting"
    " WHERE id = '$ID'"
)
NOWHERE = "DELETE FROM duly.waiting WHERE id = '$ID'"
for name, by, arrange, fix in (
    (
        "put a lost job back",
        "put_back",
        breaking(job(), NOWHERE),
        lambda world: ops_repair.put_back(world.store.dialect, [world.id]),
    ),
    (
        "put a lost job where it ended",
        "put_back",
        breaking(ran, "DELETE FROM duly.ended WHERE id = '$ID'"),
        lambda world: ops_repair.put_back(world.store.dialect, [world.id]),
    ),
    (
        "leave one place",
        "leave_one_place",
        breaking(job(), COPY_TO_SCHEDULED),
        lambda world: ops_repair.leave_one_place(world.store.dialect, [world.id]),
    ),
    (
        "drop places of no job",
        "drop_jobless",
        breaking(job(), "DELETE FROM duly.jobs WHERE id = '$ID'"),
        lambda world: ops_repair.drop_jobless(world.store.dialect, [world.id]),
    ),
    (
        "free dead keys",
        "free_keys",
        breaking(unique, NOWHERE, "DELETE FROM duly.jobs WHERE id = '$ID'"),
        lambda world: ops_repair.free_keys(world.store.dialect, [("", "k")]),
    ),
    (
        "wait for a key again",
        "wait_again",
        breaking(behind, "UPDATE duly.unique_keys SET next_id = NULL"),
        lambda world: ops_repair.wait_again(world.store.dialect, [world.id]),
    ),
    (
        "hold a key again",
        "hold_again",
        breaking(unique, "DELETE FROM duly.unique_keys"),
        lambda world: ops_repair.hold_again(world.store.dialect, [world.id]),
    ),
    (
        "free a key held for a time",
        "free_keys",
        breaking(for_a_time, NOWHERE, "DELETE FROM duly.jobs WHERE id = '$ID'"),
        lambda world: ops_repair.free_keys(world.store.dialect, [("", "k")]),
    ),
    (
        "have the key that nobody hands on",
        "wait_again",
        behind_nobody,
        lambda world: ops_repair.wait_again(world.store.dialect, [world.id]),
    ),
    *(
        (
            f"go on without a key, {place}",
            "hold_again",
            taken_over(arrange),
            lambda world: ops_repair.hold_again(world.store.dialect, [world.id]),
        )
        for place, arrange in (("waiting", unique), ("parked", parked), ("running", unique_running))
    ),
    (
        "place a recurring job",
        "place_recurring",
        breaking(made(), "DELETE FROM duly.scheduled WHERE id = '$ID'"),
        lambda world: ops_repair.place_recurring(world.store.recurring, [world.id]),
    ),
    (
        "take a disabled job out",
        "leave_disabled",
        breaking(made(), "UPDATE duly.recurring SET enabled = false, disabled_at = 1"),
        lambda world: ops_repair.leave_disabled(world.store.recurring, [world.id]),
    ),
    (
        "forget a schedule of nothing",
        "complete",
        breaking(made(), "DELETE FROM duly.jobs WHERE id = '$ID'"),
        lambda world: ops_repair.complete(world.store.recurring, [Partial(world.id, False, True, True)]),
    ),
    (
        "stand again",
        "complete",
        breaking(made(), "DELETE FROM duly.recurring WHERE id = '$ID'"),
        lambda world: ops_repair.complete(world.store.recurring, [Partial(world.id, True, True, False)]),
    ),
    (
        "run once",
        "complete",
        breaking(made(), "DELETE FROM duly.schedules WHERE id = '$ID'"),
        lambda world: ops_repair.complete(world.store.recurring, [Partial(world.id, True, False, True)]),
    ),
    (
        "run no more",
        "complete",
        breaking(made(), "DELETE FROM duly.schedules WHERE id = '$ID'", "DELETE FROM duly.scheduled WHERE id = '$ID'"),
        lambda world: ops_repair.complete(world.store.recurring, [Partial(world.id, True, False, True)]),
    ),
):
    TABLE.add(f"repair: {name}", f"Store.run ops_repair.{by}", arrange, repair(fix), broken=True)

TABLE.add("migrate", "Store.migrate", nothing, lambda world: world.store.migrate(), schema=True)
