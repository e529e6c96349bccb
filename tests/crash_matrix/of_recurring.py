"""Operations on recurring jobs: make, change, run, end their runs, spawn, mirror, prune."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duly.domain.records import HOLD, Claimed, Settled
from duly.domain.recurring import NewRecurring
from duly.schedule.schedule import Schedule
from tests.crash_matrix.of_jobs import BOSS, HOUR
from tests.crash_matrix.of_workers import complete, complete_or_look
from tests.crash_matrix.operation import Act, Table
from tests.crash_matrix.world import World, new_id
from tests.store.factory import SETTLES

TABLE = Table()
KEEP_US = 1
FIRST = "00000000-0000-0000-0000-000000000000"
MIRROR = "INSERT INTO duly.tenants (name, weight) VALUES ('mirror ' || :key, 2) ON CONFLICT (name) DO UPDATE SET weight = duly.tenants.weight + 1"  # noqa: E501


def rule(key: str = "k", overlap: str = "skip", every: str = "@every 10s", **options: Any) -> NewRecurring:
    return NewRecurring(
        **{
            "id": new_id(), "tenant": "", "task": "send", "key": key, "rule": Schedule((every,)).to_json(),
            "queue": "default", "args": "{}", "priority": 0, "retry": None, "timeout_us": None, "name": None,
            "description": None, "misfire": "all", "grace_us": HOUR, "cap": 3, "overlap": overlap,
            "failure": "advance", "pause_after": 3, "tags": None, "created_by": None, "declared": "the same",
            "limit_key": None, **options,
        }
    )  # fmt: skip


def new(**options: Any) -> Any:
    def arrange(world: World) -> None:
        world.kept["new"] = rule(**options)

    return arrange


def made(**options: Any) -> Any:
    def arrange(world: World) -> None:
        world.kept["new"] = rule(**options)
        world.kept["id"] = world.kept["new"].id
        recur(world)

    return arrange


def changed(world: World) -> None:
    made()(world)
    world.kept["new"] = rule(every="@every 1h", declared="other", id=new_id())


def tagged(world: World) -> None:
    made()(world)
    world.kept["new"] = rule(tags='["a"]', declared="other", id=new_id())


def disabled(world: World) -> None:
    made()(world)
    doing(lambda ops, world: ops.set_enabled(world.id, False, by="boss", reason="why"))(world)


def due(**options: Any) -> Any:
    def arrange(world: World) -> None:
        made(**options)(world)
        world.clock.advance(11)

    return arrange


def runs(**options: Any) -> Any:
    def arrange(world: World) -> None:
        due(**options)(world)
        world.store.promote()
        world.store.gates.admit()
        world.kept["job"] = world.make.take()
        assert world.job.hold == HOLD["recurs"]

    return arrange


def mirrored(arrange: Callable[[World], object]) -> Callable[[World], object]:
    def first(world: World) -> None:
        arrange(world)
        world.store.run(lambda: world.store.recurring.set_mirror("send", MIRROR, hook=False))

    return first


def doing(verb: Callable[[Any, World], Any]) -> Act:
    """Do something in the name of somebody."""

    def act(world: World) -> object:
        return world.store.run(lambda: verb(world.store.recurring_by(BOSS), world))

    return act


recur = doing(lambda ops, world: ops.recur(world.kept["new"]))
OF = "Store.run Store.recurring_by Recurring."
ON_RECORD = "what was done is on record twice"
TABLE.add("recur", OF + "recur", new(), recur)
TABLE.add("recur with a limit key", OF + "recur", new(limit_key="send/a"), recur)
TABLE.add("recur disabled", OF + "recur", new(enabled=False), recur)
TABLE.add("recur mirrored", OF + "recur", mirrored(new()), recur)
TABLE.add("recur otherwise than before", OF + "recur", changed, recur)
TABLE.add("recur with other tags", OF + "recur", tagged, recur)
TABLE.add("recur one that was disabled", OF + "recur", disabled, recur)
TABLE.add(
    "enable",
    OF + "set_enabled",
    disabled,
    doing(lambda ops, world: ops.set_enabled(world.id, True, by="boss", reason=None)),
)
TABLE.add(
    "disable",
    OF + "set_enabled",
    made(),
    doing(lambda ops, world: ops.set_enabled(world.id, False, by="boss", reason="why")),
)
TABLE.add(
    "disable while it runs",
    OF + "set_enabled",
    runs(),
    doing(lambda ops, world: ops.set_enabled(world.id, False, by="boss", reason="why")),
)
TABLE.add(
    "enable by a condition",
    OF + "set_enabled_if",
    disabled,
    doing(lambda ops, world: ops.set_enabled_if(world.id, "1 = :one", {"one": 1}, by="boss", reason=None)),
)
TABLE.add(
    "edit",
    OF + "edit",
    made(),
    doing(lambda ops, world: ops.edit(world.id, lambda old: rule(id=world.id, priority=3, every="@every 1h"))),
)
TABLE.add(
    "edit while it runs",
    OF + "edit",
    runs(),
    doing(lambda ops, world: ops.edit(world.id, lambda old: rule(id=world.id, every="@every 1h"))),
)
TABLE.add(
    "reschedule a recurring job",
    OF + "reschedule",
    made(),
    doing(lambda ops, world: ops.reschedule(world.id, world.clock.now_us() + HOUR)),
)
TABLE.add("run now", OF + "run_now", made(), doing(lambda ops, world: ops.run_now(world.id)), twice=ON_RECORD)
TABLE.add(
    "delete a recurring job",
    OF + "delete",
    made(),
    doing(lambda ops, world: ops.delete(world.id)),
    step="delete_recurring",
)
TABLE.add(
    "delete a recurring job while it runs",
    OF + "delete",
    runs(limit_key="send/a"),
    doing(lambda ops, world: ops.delete(world.id)),
    step="delete_recurring",
)
TABLE.add("undeclare", OF + "undeclare", made(declared_in="app"), doing(lambda ops, world: ops.undeclare("app", [])))
TABLE.add(
    "set a mirror",
    OF + "set_mirror",
    lambda world: None,
    doing(lambda ops, world: ops.set_mirror("send", MIRROR, True)),
)


def hooked(world: World) -> None:
    world.store.run(lambda: world.store.recurring.set_mirror("send", MIRROR, hook=True))


TABLE.add("forget a hook", OF + "forget_hook", hooked, doing(lambda ops, world: ops.forget_hook("send")))
TABLE.add(
    "delete a mirror",
    OF + "set_mirror",
    mirrored(lambda world: None),
    doing(lambda ops, world: ops.set_mirror("send", None, False)),
)


# -- runs and ticks -----------------------------------------------------------


def end(how: str, **options: Any) -> tuple[Act, Act]:
    def act(world: World, *, repeated: bool = False) -> object:
        return world.store.end_recurring([settled(world.job, how)], repeated=repeated, **options).accepted.keys()

    return act, lambda world: act(world, repeated=True)


def settled(job: Claimed, how: str) -> Settled:
    if how == "parked":
        return Settled(job.id, job.token, "parked", "failed", error="no", reason="mark")
    return SETTLES[how](job)


for how in ("succeeded", "failed", "released", "crashed"):
    act, repeat = end(how)
    TABLE.add(f"end a recurring run, {how}", "Store.end_recurring", runs(), act, repeat=repeat)
for name, arrange, (act, repeat) in (
    ("end a mirrored run", mirrored(runs()), end("succeeded")),
    ("end a mirrored run without its mirror", mirrored(runs()), end("succeeded", mirrored=False)),
    ("end a recurring run, queueing", runs(), end("succeeded", queueing=True)),
):
    TABLE.add(name, "Store.end_recurring", arrange, act, repeat=repeat)
TABLE.add("park a recurring run", "Store.end_recurring", runs(), end("parked")[0])
TABLE.add(
    "settle a recurring run",
    "Store.settle_keyed",
    runs(),
    lambda world: world.store.settle_keyed(SETTLES["succeeded"](world.job), world.job.hold),
)
TABLE.add("complete a recurring run", "Completions.complete", mirrored(runs()), complete, repeat=complete_or_look)
TABLE.add(
    "give a recurring run back",
    "Store.give_back",
    runs(),
    lambda world: world.store.give_back([(world.job.id, world.job.token)]),
)


def edited_while_it_runs(world: World) -> None:
    runs()(world)
    doing(lambda ops, world: ops.edit(world.id, lambda old: rule(id=world.id, queue="other")))(world)


for how in ("succeeded", "released"):
    act, repeat = end(how)
    TABLE.add(f"end a run that was edited, {how}", "Store.end_recurring", edited_while_it_runs, act, repeat=repeat)
TABLE.add(
    "give an edited run back",
    "Store.give_back",
    edited_while_it_runs,
    lambda world: world.store.give_back([(world.job.id, world.job.token)]),
)


def disabled_while_it_runs(world: World) -> None:
    runs()(world)
    doing(lambda ops, world: ops.set_enabled(world.id, False, by="boss", reason="why"))(world)


TABLE.add(
    "give a disabled run back",
    "Store.give_back",
    disabled_while_it_runs,
    lambda world: world.store.give_back([(world.job.id, world.job.token)]),
)
TABLE.add(
    "park a disabled run",
    "Store.park",
    disabled_while_it_runs,
    lambda world: world.store.park(world.job.id, world.job.token, reason="arguments", detail="no", mark="m"),
)
TABLE.add("spawn", "Store.spawn", due(overlap="allow"), lambda world: world.store.spawn())
TABLE.add(
    "spawn with a limit key", "Store.spawn", due(overlap="allow", limit_key="send/a"), lambda world: world.store.spawn()
)


def last_tick(world: World) -> None:
    until = world.clock.now_us() + 15_000_000
    due(overlap="allow", rule=Schedule(("@every 10s",), until_us=until).to_json())(world)
    world.clock.advance(60)


def mirrored_in_vain(world: World) -> None:
    due(overlap="allow")(world)
    nowhere = "INSERT INTO duly.nowhere (name) VALUES (:key)"
    world.store.run(lambda: world.store.recurring.set_mirror("send", nowhere, hook=False))


TABLE.add("spawn for the last time", "Store.spawn", last_tick, lambda world: world.store.spawn())
TABLE.add("spawn with a mirror that fails", "Store.spawn", mirrored_in_vain, lambda world: world.store.spawn())
TABLE.add("spawn mirrored", "Store.spawn", mirrored(due(overlap="allow")), lambda world: world.store.spawn())


def has_run_often(world: World) -> None:
    made()(world)
    for _ in range(12):
        world.clock.advance(11)
        world.store.promote()
        job = world.make.take()
        assert world.store.end_recurring([SETTLES["succeeded"](job)]).accepted
    world.clock.advance(60)


TABLE.add(
    "prune recurring runs",
    "Store.prune_recurring",
    has_run_often,
    lambda world: world.store.prune_recurring(FIRST, KEEP_US, actor=BOSS),
)
