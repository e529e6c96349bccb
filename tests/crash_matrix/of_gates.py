"""Operations on gates: pauses, shares, limits, keys of limits, quotas."""

from __future__ import annotations

from typing import Any

from duly.domain.limits import Says
from tests.crash_matrix.of_jobs import BOSS, HOUR, let_in
from tests.crash_matrix.of_workers import keyed
from tests.crash_matrix.operation import Act, Table
from tests.crash_matrix.world import World

TABLE = Table()
WHY: dict[str, Any] = {"by": "boss", "reason": "why", "until": None, "for_us": None}


def nothing(world: World) -> None:
    """There is nothing to arrange."""


def gates(verb: str, *args: Any, **options: Any) -> Act:
    return lambda world: getattr(world.store.gates, verb)(*args, **options)


def paused(world: World) -> None:
    world.store.gates.pause("queue", "default", **WHY)


def paused_for_a_while(world: World) -> None:
    world.store.gates.pause("queue", "default", **{**WHY, "for_us": 5_000_000})
    world.store.gates.pause("task", "send", **{**WHY, "for_us": 5_000_000})
    world.clock.advance(6)


def key_paused(world: World) -> None:
    let_in(world)
    world.store.gates.pause("key", "send/a", **WHY)


TABLE.add(
    "pause",
    "Gates.pause",
    nothing,
    gates("pause", "queue", "default", **WHY, actor=BOSS),
    twice="what was done is on record twice",
)
TABLE.add("pause for a while", "Gates.pause", nothing, gates("pause", "task", "send", **{**WHY, "for_us": HOUR}))
TABLE.add(
    "pause a key",
    "Gates.pause",
    let_in,
    gates("pause", "key", "send/a", **{**WHY, "for_us": HOUR}, actor=BOSS),
    twice="what was done is on record twice",
)
TABLE.add("resume", "Gates.resume", paused, gates("resume", "queue", "default", actor=BOSS))
TABLE.add("resume a key", "Gates.resume", key_paused, gates("resume", "key", "send/a", actor=BOSS))
TABLE.add("reopen what was paused for a while", "Gates.reopen", paused_for_a_while, gates("reopen"))
TABLE.add("set weight", "Gates.set_weight", nothing, gates("set_weight", "t", 2.0, actor=BOSS))
TABLE.add("set fair", "Gates.set_fair", nothing, gates("set_fair", "default", False, actor=BOSS))
TABLE.add("block a task", "Gates.block", nothing, gates("block", "task", "send", HOUR, "429"))
TABLE.add("block a key", "Gates.block", let_in, gates("block", "key", "send/a", HOUR, "429"))


def some_run(world: World) -> None:
    world.make.many(2)
    world.make.claim(1)


def limited(world: World) -> None:
    world.store.gates.set_limit("task", "send", Says(slots=1))


def quota(world: World) -> None:
    world.store.gates.set_limit("tenant", "t", Says(rate_n=1, rate_us=1_000_000, burst=1))


def unstamped(world: World) -> None:
    """A limit that was made, and the process that made it is gone before it marked what runs."""
    some_run(world)
    world.store.gates.set_limit("task", "send", Says(slots=1))
    assert world.raw is not None
    world.raw.rows("UPDATE duly.running SET limited = 0")
    world.raw.rows("UPDATE duly.gates SET stamped = false")


def widened(world: World) -> None:
    """A group says that there is more room, and the process that made it say so is gone before it let anybody in."""
    world.store.gates.set_limit("keys", "send", Says(slots=1))
    world.make.enqueue(limit_key="send/a")
    world.make.enqueue(limit_key="send/a")
    world.store.gates.admit()
    world.store.gates.set_limit("keys", "send", Says(slots=2))


MARKS = "runs under a new limit are marked by the next worker that looks"
RATE = Says(rate_n=5, rate_us=1_000_000, burst=2)
TABLE.add(
    "set a limit",
    "Gates.set_limit Gates.stamp",
    some_run,
    gates("set_limit", "task", "send", Says(slots=1), actor=BOSS),
    later=MARKS,
)
TABLE.add("stamp", "Gates.stamp", unstamped, gates("stamp"), later=MARKS)
TABLE.add("set a limit of keys", "Gates.set_limit", let_in, gates("set_limit", "keys", "send", RATE, actor=BOSS))
TABLE.add("unset a limit", "Gates.unset_limit", limited, gates("unset_limit", "task", "send", actor=BOSS))
TABLE.add(
    "set a quota",
    "Gates.set_quota",
    quota,
    gates(
        "set_quota",
        "t",
        {"minute": Says(rate_n=5, rate_us=60_000_000, refuses=True), "tenant": Says(slots=3)},
        actor=BOSS,
    ),
    later=MARKS,
)
TABLE.add(
    "declare limits",
    "Gates.declare Gates.rearrange",
    let_in,
    gates("declare", [(("task", "send"), Says(slots=3)), (("keys", "send"), Says(slots=1))], {"send": "send"}),
    later=MARKS,
)
TABLE.add("meter keys", "Gates.meter_keys", nothing, gates("meter_keys", "send", ["other"]))
TABLE.add(
    "set the limit of a key",
    "Gates.set_key_limit",
    let_in,
    gates("set_key_limit", "send/a", Says(slots=2, rate_n=5, rate_us=1_000_000, burst=2), actor=BOSS),
    twice="what was done is on record twice",
)
TABLE.add("lower the limit of a key", "Gates.set_key_limit", let_in, gates("set_key_limit", "send/a", Says(slots=0)))
TABLE.add("rearrange a group of keys", "Gates.rearrange", widened, gates("rearrange", "send"), broken=True)


def arrived(world: World) -> None:
    world.store.gates.set_limit("keys", "send", RATE)
    world.make.many(1)
    for key in ("send/a", "send/a", "send/b"):
        world.make.enqueue(limit_key=key)


def left_a_slot(world: World) -> None:
    """A job that was let in has gone from its lane: its key is to be looked at."""
    let_in(world)
    world.store.cancel(world.id, "why")


def has_spent(world: World) -> None:
    world.store.gates.set_limit("task", "send", RATE)
    world.store.gates.set_limit("keys", "send", RATE)
    world.make.enqueue(limit_key="send/a")
    world.store.gates.admit()
    world.kept["job"] = world.make.take(limited=True)


TABLE.add("admit", "Gates.admit", arrived, gates("admit"))
TABLE.add("admit after one has gone", "Gates.admit", left_a_slot, gates("admit"))
TABLE.add("sweep keys", "Gates.sweep", widened, gates("sweep", ""), broken=True)
TABLE.add("sweep keys while one runs", "Gates.sweep", keyed, gates("sweep", ""))
TABLE.add(
    "refund", "Gates.refund", has_spent, gates("refund", [([("task", "send")], "send/a")]),
    twice="what was taken of a rate is given back twice", forgone="a rate must not be exceeded",
)  # fmt: skip
