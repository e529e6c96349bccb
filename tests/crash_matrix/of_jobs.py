"""Operations of producers and of people: enqueue, cancel, retry, delete and the rest, also within one tenant."""

from __future__ import annotations

from typing import Any

from duly.domain.audit import Actor
from duly.domain.limits import Says
from duly.domain.records import NewJob
from duly.domain.states import State
from duly.store.call import Dialect
from duly.store.store import Store
from duly.store.tenant import TenantStore
from tests.crash_matrix.operation import Act, Table
from tests.crash_matrix.world import World, new_id

BOSS = Actor("boss", "python", True)
TABLE = Table()
NOTHING = {"a": 1}
HOUR = 3_600_000_000


def new(**options: Any) -> Any:
    """Arrange for a job that is about to be enqueued."""

    def arrange(world: World) -> None:
        world.kept["new"] = NewJob(id=new_id(), task="send", args="{}", **options)

    return arrange


def enqueue(world: World) -> object:
    return world.store.enqueue(world.kept["new"])


def beside(first: dict[str, Any], second: dict[str, Any], *, runs: bool = False) -> Any:
    """Arrange for a job that comes when another with its unique key is there."""

    def arrange(world: World) -> None:
        world.make.unique(**first)
        if runs:
            world.make.take()
        unique = {"unique_key": "k", "unique_mode": "skip", "unique_scope": "live", **second}
        world.kept["new"] = NewJob(id=new_id(), task="send", args='{"n": 2}', **unique)

    return arrange


UNIQUE = {"unique_key": "k", "unique_mode": "skip", "unique_scope": "live"}
TABLE.add("enqueue plain", "Store.enqueue", new(), enqueue)
TABLE.add(
    "enqueue plain, by the server's clock", "Store.enqueue", new(), enqueue, runs_clock=True, only=Dialect.POSTGRES
)
TABLE.add("enqueue with options", "Store.enqueue", new(tags='["a"]', timeout_us=9, enqueued_by="me"), enqueue)
TABLE.add("enqueue later", "Store.enqueue", new(delay_us=HOUR), enqueue)
TABLE.add("enqueue unique", "Store.enqueue", new(**UNIQUE), enqueue)
TABLE.add(
    "enqueue unique for a time",
    "Store.enqueue",
    new(unique_key="k", unique_mode="skip", unique_scope="window", unique_window_us=HOUR),
    enqueue,
)
TABLE.add("enqueue with a limit key", "Store.enqueue", new(limit_key="send/a"), enqueue)
TABLE.add("enqueue later with a limit key", "Store.enqueue", new(limit_key="send/a", delay_us=HOUR), enqueue)


def ran_already(world: World) -> None:
    new(**UNIQUE)(world)
    enqueue(world)
    assert world.make.finish(world.make.take())


TABLE.add("enqueue unique, again after it ended", "Store.enqueue", ran_already, enqueue)
TABLE.add("enqueue unique, skipped", "Store.enqueue", beside({}, {}), enqueue)
TABLE.add("enqueue unique, replacing", "Store.enqueue", beside({}, {"unique_mode": "replace"}), enqueue)
TABLE.add(
    "enqueue unique, replacing, with another limit key",
    "Store.enqueue",
    beside({"limit_key": "send/a"}, {"unique_mode": "replace", "limit_key": "send/b"}),
    enqueue,
)
TABLE.add(
    "enqueue unique, debouncing", "Store.enqueue", beside({}, {"unique_mode": "debounce", "delay_us": HOUR}), enqueue
)
TABLE.add(
    "enqueue unique, taking over",
    "Store.enqueue",
    beside({"scope": "queued"}, {"unique_scope": "queued"}, runs=True),
    enqueue,
)
TABLE.add(
    "enqueue unique, keeping the latest",
    "Store.enqueue",
    beside({}, {"unique_mode": "keep_latest"}, runs=True),
    enqueue,
)


def two_kept(world: World) -> None:
    beside({}, {"unique_mode": "keep_latest"}, runs=True)(world)
    world.make.unique(mode="keep_latest")


TABLE.add("enqueue unique, newer than the latest", "Store.enqueue", two_kept, enqueue)


def many(n: int = 3, *, unique: bool = False, keyed: bool = False, taken: bool = False, **options: Any) -> Any:
    def arrange(world: World) -> None:
        if taken:
            world.make.unique("k1", scope=str(options.get("unique_scope", "live")))
        model = NewJob(id=new_id(), task="send", args="{}", **options)
        rows = [
            (new_id(), '{"n": 1}', f"k{i}" if unique else None, *([f"send/{i % 2}"] if keyed else [])) for i in range(n)
        ]
        world.kept["many"] = (model, rows)

    return arrange


def enqueue_many(world: World) -> object:
    return world.store.enqueue_many(*world.kept["many"])


def enqueue_many_inserting(world: World) -> object:
    world.store.database.copies = False  # type: ignore[misc]  # as under row-level security
    return world.store.enqueue_many(*world.kept["many"])


KEPT_LATEST: dict[str, Any] = {"unique_mode": "keep_latest", "unique_scope": "live"}
TABLE.add("enqueue many", "Store.enqueue_many", many(), enqueue_many)
TABLE.add("enqueue many by INSERT", "Store.enqueue_many", many(), enqueue_many_inserting, only=Dialect.POSTGRES)
TABLE.add("enqueue many later", "Store.enqueue_many", many(delay_us=HOUR), enqueue_many)
TABLE.add(
    "enqueue many later by INSERT",
    "Store.enqueue_many",
    many(delay_us=HOUR),
    enqueue_many_inserting,
    only=Dialect.POSTGRES,
)
TABLE.add("enqueue many with limit keys", "Store.enqueue_many", many(keyed=True), enqueue_many)
TABLE.add(
    "enqueue many with limit keys by INSERT",
    "Store.enqueue_many",
    many(keyed=True),
    enqueue_many_inserting,
    only=Dialect.POSTGRES,
)
TABLE.add(
    "enqueue many unique",
    "Store.enqueue_many",
    many(unique=True, taken=True, unique_mode="skip", unique_scope="live"),
    enqueue_many,
)
TABLE.add(
    "enqueue many unique, keeping the latest",
    "Store.enqueue_many",
    many(unique=True, taken=True, **KEPT_LATEST),
    enqueue_many,
)


def with_quota(world: World) -> None:
    world.store.gates.set_quota("t", {"minute": Says(rate_n=50, rate_us=60_000_000, refuses=True)})
    world.kept["new"] = NewJob(id=new_id(), task="send", args="{}", tenant="t")


TABLE.add(
    "enqueue under a quota", "Store.enqueue Caps.check", with_quota, enqueue,
    uncompared=("gates",), note="the quota is spent for each try, the job is stored once",
)  # fmt: skip


# -- people -----------------------------------------------------------


def job(**options: Any) -> Any:
    def arrange(world: World) -> None:
        world.kept["id"] = world.make.enqueue(**options)

    return arrange


def unique_job(world: World) -> None:
    world.kept["id"] = world.make.unique().id


def followed(world: World) -> None:
    """A job whose unique key another waits for."""
    world.kept["id"] = world.make.unique().id
    job = world.make.take()
    world.make.unique(mode="keep_latest")
    assert world.make.retry_later(job)


def running(**options: Any) -> Any:
    def arrange(world: World) -> None:
        world.kept["job"] = world.make.running(**options)
        world.kept["id"] = world.kept["job"].id

    return arrange


def ended(**options: Any) -> Any:
    def arrange(world: World) -> None:
        world.kept["id"] = world.make.ended("failed", **options)

    return arrange


def ended_unique(world: World) -> None:
    world.make.unique()
    job = world.make.take()
    assert world.make.finish(job, "failed")
    world.kept["id"] = job.id


def let_in(world: World) -> None:
    """Two jobs of a limit key with one slot: one is let in, the other waits."""
    world.store.gates.set_key_limit("send/a", Says(slots=1))
    world.kept["id"] = world.make.enqueue(limit_key="send/a")
    world.kept["other"] = world.make.enqueue(limit_key="send/a")
    world.store.gates.admit()


def parked(world: World) -> None:
    job = world.make.running()
    assert world.store.park(job.id, job.token, reason="arguments", detail="no", mark="old")
    world.kept["id"] = job.id


def by_boss(verb: str, *args: Any, **options: Any) -> Act:
    return lambda world: getattr(world.store, verb)(world.id, *args, actor=BOSS, **options)


for how, arrange in {
    "waiting": job(),
    "scheduled": job(delay_us=HOUR),
    "unique": unique_job,
    "followed": followed,
    "let in": let_in,
    "parked": parked,
    "running": running(),
}.items():
    TABLE.add(f"cancel {how}", "Store.cancel", arrange, by_boss("cancel", "why"))
for how, arrange in {
    "ended": ended(),
    "ended unique": ended_unique,
    "scheduled": job(delay_us=HOUR),
    "parked": parked,
    "let in": let_in,
}.items():
    TABLE.add(f"retry {how}", "Store.retry", arrange, by_boss("retry"), step="retry")
for how, arrange in {
    "waiting": job(),
    "ended": ended(),
    "followed": followed,
    "let in": let_in,
    "running": running(),
}.items():
    TABLE.add(f"delete {how}", "Store.delete", arrange, by_boss("delete"), step="delete")
for how, arrange in {"waiting": job(), "followed": followed}.items():
    TABLE.add(f"end by hand {how}", "Store.end_by_hand", arrange, by_boss("end_by_hand", State.FAILED, "why"))
for how, arrange in {"waiting": job(), "scheduled": job(delay_us=HOUR), "let in": let_in}.items():
    TABLE.add(f"set priority {how}", "Store.set_priority", arrange, by_boss("set_priority", 50))
    TABLE.add(f"reschedule {how}", "Store.reschedule", arrange, by_boss("reschedule", delay_us=2 * HOUR))
for how, arrange in {"parked": parked, "held back": job(limit_key="send/a")}.items():
    TABLE.add(f"set priority {how}", "Store.set_priority", arrange, by_boss("set_priority", 50))
TABLE.add("reschedule to now", "Store.reschedule", job(delay_us=HOUR), by_boss("reschedule"))


def several(world: World) -> None:
    make = world.make
    world.kept["ids"] = [make.enqueue(), make.running("run").id, make.ended("failed", task="end"), new_id()]


TABLE.add(
    "cancel many",
    "Store.cancel_many Store.poke_cancelled",
    several,
    lambda world: world.store.cancel_many(world.kept["ids"], "why", actor=BOSS),
)
TABLE.add(
    "retry many",
    "Store.retry_many",
    several,
    lambda world: world.store.retry_many(world.kept["ids"], actor=BOSS),
    step="retry",
)
TABLE.add(
    "delete many",
    "Store.delete_many",
    several,
    lambda world: world.store.delete_many(world.kept["ids"], actor=BOSS),
    step="delete",
)
TABLE.add("release parked", "Store.release_parked", parked, lambda world: world.store.release_parked("send", "new"))


# -- one tenant -----------------------------------------------------------


def own(store: Store) -> TenantStore:
    return store.of_tenant("t")


def by_tenant(verb: str, *args: Any) -> Act:
    return lambda world: getattr(own(world.store), verb)(world.id, *args, actor=BOSS)


def of_tenant(world: World) -> None:
    make = world.make
    world.kept["id"] = make.enqueue(tenant="t")
    world.kept["ended"] = make.ended("failed", task="gone", tenant="t")
    world.kept["ids"] = [world.id, make.ended("failed", task="end", tenant="t"), make.enqueue(tenant="other")]


for verb, args, step in (
    ("cancel", ("why",), ""),
    ("delete", (), "delete"),
    ("set_priority", (5,), ""),
    ("end_by_hand", (State.FAILED, "why"), ""),
):
    TABLE.add(
        f"tenant: {verb}", f"TenantStore.{verb}", of_tenant, by_tenant(verb, *args), step=step,
    )  # fmt: skip
TABLE.add(
    "tenant: retry",
    "TenantStore.retry",
    of_tenant,
    lambda world: own(world.store).retry(world.kept["ended"], actor=BOSS),
    step="retry",
)
TABLE.add(
    "tenant: reschedule",
    "TenantStore.reschedule",
    of_tenant,
    lambda world: own(world.store).reschedule(world.id, delay_us=HOUR, actor=BOSS),
)
TABLE.add(
    "tenant: cancel many",
    "TenantStore.cancel_many",
    of_tenant,
    lambda world: own(world.store).cancel_many(world.kept["ids"], "why", actor=BOSS),
)
TABLE.add(
    "tenant: retry many",
    "TenantStore.retry_many",
    of_tenant,
    lambda world: own(world.store).retry_many(world.kept["ids"], actor=BOSS),
    step="retry",
)
TABLE.add(
    "tenant: delete many",
    "TenantStore.delete_many",
    of_tenant,
    lambda world: own(world.store).delete_many(world.kept["ids"], actor=BOSS),
    step="delete",
)
