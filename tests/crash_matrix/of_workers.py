"""Operations of workers: claim, renew, settle, give back, park, rescue, complete; and the worker's own row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.domain.limits import Breaker, Says
from duly.domain.records import Claimed, Lane, ProcessIdentity, Settled, Skew
from duly.store.call import Dialect, Op
from duly.store.ops_keys import Freed
from duly.store.ops_settle import RUNS_KEPT
from tests.crash_matrix.of_jobs import let_in, running
from tests.crash_matrix.operation import Act, Table
from tests.crash_matrix.world import World
from tests.store.factory import SETTLES

TABLE = Table()
LEASE_US = 15_000_000
WORKER, OTHER_WORKER = "01900000-0000-7000-8000-000000000001", "01900000-0000-7000-8000-000000000002"
SEND = Lane("", "send")
LOST = "the jobs of a claim whose answer was lost are given back, uncounted, before the next"


# -- claim -----------------------------------------------------------


def claim(world: World, lanes: Sequence[Lane] = (SEND,), n: int = 2, **options: Any) -> list[Claimed]:
    return world.store.claim("default", lanes, n, worker_id=WORKER, lease_us=LEASE_US, **options)


def claiming(lanes: Sequence[Lane] = (SEND,), n: int = 2, **options: Any) -> tuple[Act, Act]:
    """A claim; and what a worker does whose claim may have been made or not."""

    def act(world: World) -> object:
        return sorted(job[:3] for job in claim(world, lanes, n, **options))

    def repeat(world: World) -> object:
        world.store.give_back(world.store.held_by(WORKER))
        return act(world)

    return act, repeat


HOUR_US = 3_600_000_000  # by the server's clock, which goes on


def three(world: World) -> None:
    world.make.many(3)


def under_limit(world: World) -> None:
    world.store.gates.set_limit("task", "send", Says(slots=2, rate_n=10, rate_us=HOUR_US, burst=5))
    world.make.many(3)


def under_key_rate(world: World) -> None:
    world.store.gates.set_limit("keys", "send", Says(rate_n=10, rate_us=HOUR_US, burst=5))
    world.store.gates.meter_keys("send", ["send"])
    world.make.enqueue(limit_key="send/a")
    world.store.gates.admit()


def suspects(world: World) -> None:
    job = world.make.running()
    assert world.store.settle([Settled(job.id, job.token, "queued", "crashed", crashes=2)])


def tenants(world: World) -> None:
    for tenant in ("a", "b"):
        world.make.many(2, tenant=tenant)


TENANTS = (Lane("a", "send"), Lane("b", "send"))
for name, arrange, (act, repeat) in (
    ("claim", three, claiming()),
    ("claim of several lanes", tenants, claiming(TENANTS)),
    ("claim under a limit", under_limit, claiming(gates=[("task", "send")])),
    ("claim under the rate of a key", under_key_rate, claiming(gates=[("task", "send")])),
    ("claim suspects", suspects, claiming(suspect=True)),
    ("claim by shares", tenants, claiming(TENANTS, shares={"a": 1, "b": 1})),
    ("claim by shares that are too many", tenants, claiming(TENANTS, n=1, shares={"a": 1, "b": 1})),
    ("claim several lanes under a limit", tenants, claiming(TENANTS, gates=[("task", "send")])),
):
    rated = ("gates", "keys") if arrange in (under_limit, under_key_rate) else ()  # by the server's clock on PostgreSQL
    TABLE.add(name, "Store.claim", arrange, act, repeat=repeat, twice=LOST, uncompared=rated)


# -- while it runs -----------------------------------------------------------


def two_running(world: World) -> None:
    world.make.many(2)
    world.kept["jobs"] = world.make.claim(2)
    world.clock.advance(5)


def pairs(world: World) -> list[tuple[str, int]]:
    return [(job.id, job.token) for job in world.kept["jobs"]]


TABLE.add("renew", "Store.renew", two_running, lambda world: world.store.renew(pairs(world), LEASE_US))
TABLE.add(
    "renew, not begun",
    "Store.renew",
    running(timeout_us=5_000_000),
    lambda world: world.store.renew([(world.job.id, world.job.token)], LEASE_US, [world.job.id]),
)
TABLE.add(
    "renew, one lost",
    "Store.renew",
    two_running,
    lambda world: world.store.renew([*pairs(world), (WORKER, 1)], LEASE_US),
)
TABLE.add(
    "progress",
    "Store.progress",
    running(),
    lambda world: world.store.progress(world.job.id, world.job.token, 0.5, "half"),
)


# -- settle -----------------------------------------------------------


def settle_as(how: str) -> dict[str, Act]:
    """What a worker's finisher does: the second time it says that it is the second."""

    def act(world: World, *, repeated: bool = False) -> object:
        freed = None if world.job.limit_key is None else Freed([world.job.limit_key])
        return world.store.settle_keyed(SETTLES[how](world.job), world.job.hold, repeated=repeated, freed=freed)

    return {"act": act, "repeat": lambda world: act(world, repeated=True)}


def unique_running(**options: Any) -> Any:
    def arrange(world: World) -> None:
        world.make.unique(**options)
        world.kept["job"] = world.make.take()

    return arrange


def with_follower(world: World) -> None:
    unique_running()(world)
    world.make.unique(mode="keep_latest")


def superseded(world: World) -> None:
    unique_running(scope="queued")(world)
    world.make.unique(scope="queued")


def keyed(world: World) -> None:
    let_in(world)
    world.kept["job"] = world.make.take()


def with_breaker(world: World) -> None:
    keyed(world)
    world.store.gates.set_limit("keys", "send", Says(slots=1, breaker=Breaker(least=3).to_data()))


def batch(*hows: str) -> tuple[Act, Act]:
    def settled(world: World) -> list[Settled]:
        return [SETTLES[how](job) for how, job in zip(hows, world.kept["jobs"], strict=True)]

    return (
        lambda world: world.store.settle(settled(world)),
        lambda world: world.store.settle(settled(world), repeated=True),
    )


for hows in (("succeeded", "failed"), ("retried", "released"), ("crashed", "cancelled")):
    TABLE.add(f"settle {' and '.join(hows)}", "Store.settle", two_running, batch(*hows)[0], repeat=batch(*hows)[1])
for how in ("succeeded", "retried", "released"):
    TABLE.add(f"settle unique {how}", "Store.settle_keyed", unique_running(), **settle_as(how))
    TABLE.add(
        f"settle unique while queued {how}", "Store.settle_keyed", unique_running(scope="queued"), **settle_as(how)
    )


def long_running(world: World) -> None:
    """A job that has snoozed very often."""
    job = world.make.running()
    assert world.raw is not None
    for token in (1, RUNS_KEPT, 2 * RUNS_KEPT - 1):
        world.raw.rows(
            "INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id)"
            f" SELECT id, {token}, 1, 'snoozed', 1, 2, worker_id FROM duly.running"
        )
    world.raw.rows(f"UPDATE duly.running SET token = {2 * RUNS_KEPT}")
    world.kept["job"] = job._replace(token=2 * RUNS_KEPT)


TABLE.add("settle the last of many runs", "Store.settle", long_running, **settle_as("snoozed"))
TABLE.add("settle unique and let the next have the key", "Store.settle_keyed", with_follower, **settle_as("succeeded"))
TABLE.add("settle unique that another took over", "Store.settle_keyed", superseded, **settle_as("retried"))
TABLE.add(
    "settle and let the next of a limit key in", "Store.settle_keyed Store.settle", keyed, **settle_as("succeeded")
)


def settle_counting(world: World, *, repeated: bool = False) -> object:
    freed = Freed(["send/a"], ended=[(world.job.id, "send/a", True)])
    return world.store.settle_keyed(SETTLES["failed"](world.job), world.job.hold, repeated=repeated, freed=freed)


TABLE.add(
    "settle and count for a breaker", "Store.settle_keyed Store.settle", with_breaker, settle_counting,
    repeat=lambda world: settle_counting(world, repeated=True),
)  # fmt: skip


def asked_to_stop(world: World) -> None:
    unique_running()(world)
    world.store.cancel(world.job.id, "stop")


TABLE.add("settle one that was asked to stop", "Store.settle_keyed", asked_to_stop, **settle_as("retried"))


def lapsed(**options: Any) -> Any:
    """A run whose worker is gone, as another finds it."""

    def arrange(world: World) -> None:
        if options:
            world.make.unique(**options)
            world.make.take()
        else:
            world.make.running()
        world.clock.advance(60)
        [world.kept["run"]] = world.store.lapsed(LEASE_US)

    return arrange


def rescue(world: World) -> object:
    run = world.kept["run"]
    settled = Settled(run.id, run.token, "queued", "crashed", crashes=run.crashes + 1)
    return world.store.settle_keyed(settled, run.hold, only_expired=True)


TABLE.add("rescue", "Store.settle_keyed Store.settle", lapsed(), rescue)
TABLE.add("rescue unique", "Store.settle_keyed", lapsed(scope="queued"), rescue)


def give_back(world: World) -> object:
    return world.store.give_back(pairs(world))


def park(world: World, *, repeated: bool = False) -> object:
    freed = None if world.job.limit_key is None else Freed([world.job.limit_key])
    return world.store.park(
        world.job.id, world.job.token, reason="arguments", detail="no", mark="m", repeated=repeated, freed=freed
    )


def mixed(world: World) -> None:
    make = world.make
    keyed(world)
    unique = make.unique("u", scope="queued", task="unique")
    assert unique.created
    world.kept["jobs"] = [world.job, make.take(task="unique"), make.running("plain")]


TABLE.add("give back", "Store.give_back", mixed, give_back)
TABLE.add("give back some", "Store.give_back", two_running, give_back)
for how, arrange in {
    "plain": running(),
    "unique": unique_running(),
    "superseded": superseded,
    "let in": keyed,
    "asked to stop": asked_to_stop,
}.items():
    TABLE.add(f"park {how}", "Store.park", arrange, park, repeat=lambda world: park(world, repeated=True))


# -- complete -----------------------------------------------------------


def complete(world: World) -> object:
    """The statements that a handler's own transaction runs, here in one of ours: `tests/foreign` has the others."""

    def op() -> Op[object]:
        return (yield from world.store.completions.complete(world.job, SETTLES["succeeded"](world.job), shard=7))

    return world.store.database.write(op, again=False)


def look(world: World) -> object:
    return world.store.completions.look([(world.job.id, world.job.token)])


def complete_or_look(world: World) -> object:
    """What a worker does that does not know if the transaction of its handler was committed."""
    if look(world).recorded:  # type: ignore[attr-defined]
        return "it was"
    return complete(world)


for how, arrange in {"plain": running(), "unique": with_follower, "let in": keyed}.items():
    TABLE.add(f"complete {how}", "Completions.complete", arrange, complete, repeat=complete_or_look)
TABLE.add("look what became of a run", "Completions.look", running(), look)


def completed(world: World) -> None:
    keyed(world)
    complete(world)


TABLE.add(
    "let in after a completion",
    "Completions.let_in",
    completed,
    lambda world: world.store.completions.let_in(Freed(["send/a"])),
)
TABLE.add(
    "keep the log of a completed run",
    "Completions.keep_log",
    completed,
    lambda world: world.store.completions.keep_log(world.job.id, world.job.token, "a line"),
)


# -- the worker itself -----------------------------------------------------------

PROCESS = ProcessIdentity(host="here", boot_id="boot", pid_namespace="1", pid=7, process_started_at="1")


def start(world: World, worker_id: str = WORKER) -> None:
    world.store.add_worker(
        worker_id, PROCESS, lease_us=LEASE_US, queues="default", tasks="send", slots=4, wake=None, version="1"
    )


def started(world: World) -> None:
    start(world)
    start(world, OTHER_WORKER)
    world.clock.advance(5)


TABLE.add("a worker starts", "Store.add_worker", lambda world: None, start)
TABLE.add(
    "a worker is seen",
    "Store.see_worker",
    started,
    lambda world: world.store.see_worker(WORKER, "running", Skew(1, 2), 5),
)
TABLE.add(
    "tables are counted anew",
    "Store.count_anew",
    started,
    lambda world: world.store.count_anew(),
    only=Dialect.POSTGRES,
)
TABLE.add("a worker is idle", "Store.set_idle", started, lambda world: world.store.set_idle(WORKER, False))
TABLE.add("a worker stops", "Store.remove_worker", started, lambda world: world.store.remove_worker(WORKER))
