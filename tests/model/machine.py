"""The machine that does to real stores whatever producers, workers, operators and faults do, and to the model the same.

After each step every answer, and everything that can be seen, is what the model says, on every store; and the promises
hold. A worker here is what it believes to hold: it goes on believing it after its lease has lapsed, after its run was
given to another, after it has said the same before. That is what paused, cut-off and repeating workers are to a store.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duly.domain import outcome
from duly.domain.errors import Retry, Snooze
from duly.domain.limits import Gate
from duly.domain.records import HOLD, Claimed, Lane, NewJob, Settled
from duly.domain.recurring import NewRecurring
from duly.domain.retry import Backoff
from duly.schedule import Schedule
from duly.testing import TestClock
from tests.clock import us
from tests.model import seen
from tests.model.model import Model
from tests.model.promises import Promises, check_tenant
from tests.model.real import Real
from tests.model.seen import same
from tests.model.work import CRASH_LIMIT
from tests.store.raw import Raw

LEASE = us(15)
MOST_BELIEVED = 8
TASKS = ("a", "b")
TENANTS = ("", "t")
LANES = [Lane(tenant, task) for tenant in TENANTS for task in TASKS]
LIMIT_KEYS = ("a/x", "b/x")
GATES: list[Gate] = [("task", "a"), ("tenant", "t"), ("queue", "default")]
DOORS: list[tuple[str, str]] = [*GATES, ("key", "a/x")]
UNIQUE = (
    *(("skip", scope) for scope in ("queued", "live", "window")),
    *(("replace", scope) for scope in ("queued", "live", "window")),
    *(("debounce", scope) for scope in ("queued", "live")),
    ("keep_latest", "live"),
)
BACKOFF = Backoff.exponential(max_attempts=5)
REPEATABLE = ("enqueue", "enqueue_many", "renew", "settle", "look", "set_priority", "reschedule", "retry", "pause")
"""What gives the same answer when it is repeated after a lost reply."""

tasks, tenants = st.sampled_from(TASKS), st.sampled_from(TENANTS)
which = st.integers(0, 30)
lost = st.sampled_from([False, False, False, True])
seldom = st.sampled_from([False] * 5 + [True])
verbs = st.sampled_from(["cancel", "cancel", "retry", "retry", "delete", "end_by_hand", "set_priority", "reschedule"])
outcomes = st.sampled_from(
    ["succeeded", "failed", "failed", "retry", "snoozed", "cancelled", "released", "expired", "died", "died"]
)
sayings = st.sampled_from(["settle", "settle", "renew", "give_back", "park"])
some_jobs = precondition(lambda self: self.model.jobs)
some_beliefs = precondition(lambda self: any(self.believes.values()))
some_recurring = precondition(lambda self: self.model.recurring)
few = st.integers(1, 4)


def nth_id(n: int, kind: int = 8) -> str:
    return f"00000000-0000-7000-{kind}000-{n:012x}"


class Machine(RuleBasedStateMachine):
    """One model, and a store for each of `raws`."""

    raws: tuple[Raw, ...]

    def __init__(self) -> None:
        super().__init__()
        self.clock = TestClock()
        self.model = Model(self.clock)
        self.reals: list[Real] = []
        self.step = "nothing"
        self.made = 0
        self.said: list[NewJob] = []
        self.stored: set[str] = set()
        self.believes: dict[str, list[Claimed]] = {}
        self.dead: list[str] = []

    @initialize(slots=st.sampled_from([None, 1, 2]))
    def open(self, slots: int | None) -> None:
        for raw in self.raws:
            self.reals.append(Real(raw, self.clock))
        self.promises = [Promises(real) for real in self.reals]
        self.do("set_group", slots, LIMIT_KEYS)
        for _ in range(2):
            self.start_worker()

    def teardown(self) -> None:
        try:
            if self.step != "broken":
                self.finish_all()
        finally:
            for real in self.reals:
                real.close()

    def do(self, name: str, *args: Any, lost: bool = False, **options: Any) -> Any:
        """One step of the model and of every store. Returns what the model answered, and all of them did."""
        self.step = "broken"
        expected = getattr(self.model, name)(*args, **options)
        for real in self.reals:
            real.database.loses = lost
            answer = getattr(real, name)(*args, **options)
            real.database.loses = False
            if not lost or name in REPEATABLE:
                assert answer == expected, f"{name}{args}: the model says {expected}, {_kind(real)} says {answer}"
        self.step = name
        return expected

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        step, self.step = self.step, "broken"
        for real, promises in zip(self.reals, self.promises if self.reals else (), strict=True):
            where = f"after {step}, on {_kind(real)}"
            with real.raw.at_once():
                self.compare(real, promises, step, where)
        for it in self.model.recurring.values():
            assert it.ticks_done == sorted(set(it.ticks_done)), f"I8: a tick was run twice: {it.ticks_done}"
        self.step = step

    def compare(self, real: Real, promises: Promises, step: str, where: str) -> None:
        same(seen.jobs(self.model), real.jobs(), where)
        same(seen.counts(self.model), real.counts(), where)
        same(sorted(self.model.runs), real.runs(), where)
        same(seen.unique_keys(self.model), real.unique_keys(), where)
        same(seen.recurring(self.model), real.recurring(), where)
        same(seen.limits(self.model), real.limits(), where)
        for worker in self.believes:
            same(seen.held_by(self.model, worker), real.held_by(worker), where)
        promises.check(step)

    # -- producers --------------------------------------------------------------------------------------------

    def new(self, task: str, tenant: str, **options: Any) -> NewJob:
        self.made += 1
        options.setdefault("args", f'{{"n": {self.made}}}')
        return NewJob(id=nth_id(self.made), task=task, tenant=tenant, retry=BACKOFF.to_data(), **options)

    @rule(
        task=tasks,
        tenant=tenants,
        priority=st.sampled_from([0, 0, 50]),
        delay=st.sampled_from([0, 0, 5]),
        attempts=st.sampled_from([1, 2, 5]),
        timeout=st.sampled_from([None, 20]),
        limited=st.booleans(),
        lost=lost,
    )
    def enqueue(
        self,
        task: str,
        tenant: str,
        priority: int,
        delay: int,
        attempts: int,
        timeout: int | None,
        limited: bool,
        lost: bool,
    ) -> None:
        new = self.new(
            task,
            tenant,
            priority=priority,
            delay_us=us(delay),
            max_attempts=attempts,
            timeout_us=None if timeout is None else us(timeout),
            limit_key=f"{task}/x" if limited else None,
        )
        self.say(new, lost)

    @rule(task=tasks, tenant=tenants, lost=lost)
    def enqueue_plain(self, task: str, tenant: str, lost: bool) -> None:
        self.say(self.new(task, tenant)._replace(retry=None), lost)

    @rule(
        key=st.sampled_from(["k", "l"]),
        how=st.sampled_from(UNIQUE),
        delay=st.sampled_from([0, 0, 5]),
        limited=st.sampled_from([False, False, True]),
        lost=lost,
    )
    def enqueue_unique(self, key: str, how: tuple[str, str], delay: int, limited: bool, lost: bool) -> None:
        mode, scope = how
        window = us(20) if scope == "window" else None
        new = self.new("a", "", delay_us=us(delay), limit_key="a/x" if limited else None)
        self.say(new._replace(unique_key=key, unique_mode=mode, unique_scope=scope, unique_window_us=window), lost)

    def say(self, new: NewJob, lost: bool) -> None:
        self.said.append(new)
        answer, created = self.do("enqueue", new, lost=lost)
        if created:
            self.stored.add(answer)

    @rule(n=few, unique=st.booleans(), limited=st.booleans(), lost=lost)
    def enqueue_many(self, n: int, unique: bool, limited: bool, lost: bool) -> None:
        options = {"unique_mode": "skip", "unique_scope": "live"} if unique else {}
        news = [self.new("b", "", **options, limit_key="b/x" if limited else None) for _ in range(n)]
        if unique:
            news = [each._replace(unique_key="klm"[at % 3]) for at, each in enumerate(news)]
        self.do("enqueue_many", news, lost=lost)

    @precondition(lambda self: self.said)
    @rule(which=which)
    def enqueue_again(self, which: int) -> None:
        """A producer whose connection broke says again what it said, however much later."""
        new = _pick(self.said, which)
        forgotten = new.id in self.stored and new.id not in self.model.jobs  # then it would be a new job
        if new.unique_scope != "window" and not forgotten:  # nor may a window begin anew: it must come within it
            self.do("enqueue", new)

    # -- workers ----------------------------------------------------------------------------------------------

    def start_worker(self) -> None:
        self.made += 1
        worker = nth_id(self.made, kind=9)
        self.believes[worker] = []
        for real in self.reals:
            real.start_worker(worker)

    def worker(self, which: int) -> str:
        return str(_pick(sorted(self.believes), which))

    def believer(self, which: int) -> str:
        """A worker that believes to hold something."""
        return str(_pick(sorted(worker for worker, some in self.believes.items() if some), which))

    @rule(lost=lost)
    def look(self, lost: bool) -> None:
        self.do("look", lost=lost)

    @some_jobs
    @rule(which=which, group=which, n=few, behind=seldom, share=st.sampled_from([None, None, 1, 2]), lost=seldom)
    def claim(self, which: int, group: int, n: int, behind: bool, share: int | None, lost: bool) -> None:
        """Lanes that the same limits bind are claimed together. `behind`: by a worker that knows of no limit."""
        bound = sorted({self.model.bound_by(lane) for lane in LANES})
        gates = _pick(bound, group)
        lanes = [lane for lane in LANES if self.model.bound_by(lane) == gates]
        shares = None if share is None else {"": share, "t": 1}
        n = n if shares is None else max(n, sum(shares.values()))
        suspect = any(job.suspect and job.place == "waiting" for job in self.model.jobs.values())
        worker = self.worker(which)
        claimed = self.do("claim", lanes, n, worker, LEASE, () if behind else gates, suspect, shares, lost=lost)
        if not lost:
            some = [self.model.claimed(job_id) for job_id, _, _ in claimed]
            self.believes[worker] = [*some, *self.believes[worker]][:MOST_BELIEVED]

    @some_jobs
    @rule(which=which)
    def claim_all(self, which: int) -> None:
        """A worker with many free slots comes by."""
        self.look(lost=False)
        self.all_is_as_the_model_says()
        for group in range(len({self.model.bound_by(lane) for lane in LANES})):
            self.claim(which, group, 4, behind=False, share=None, lost=False)
            self.all_is_as_the_model_says()

    @rule(which=which)
    def find_what_was_lost(self, which: int) -> None:
        """A worker that was cut off gives back what the database says it holds and it knows nothing of."""
        worker = self.worker(which)
        known = {(job.id, job.token) for job in self.believes[worker]}
        self.do("give_back", [pair for pair in seen.held_by(self.model, worker) if pair not in known])

    @some_beliefs
    @rule(which=which, lost=lost)
    def renew(self, which: int, lost: bool) -> None:
        pairs = {job.id: (job.id, job.token) for job in self.believes[self.believer(which)]}
        self.do("renew", list(pairs.values()), LEASE, lost=lost)

    def drawn(self, which: int, first: int, n: int) -> list[Claimed]:
        """Some of what a worker believes to hold, of different jobs, all settled by the same kind of call."""
        believed = self.believes[self.believer(which)]
        some = [_pick(believed, first + at) for at in range(n)]
        if _route(some[0]) == "keyed":  # these are settled one by one
            return some[:1]
        return list({job.id: job for job in some if _route(job) == _route(some[0])}.values())

    @some_beliefs
    @rule(which=which, first=which, n=few, how=outcomes, ran=st.booleans(), twice=seldom, lost=lost)
    def settle(self, which: int, first: int, n: int, how: str, ran: bool, twice: bool, lost: bool) -> None:
        """Say how runs ended, also of runs that are lost or were said to have ended before; perhaps say it twice."""
        jobs = self.drawn(which, first, n)
        batch = [_ended(job, how, ran) for job in jobs]
        on_record = all(each.outcome != "released" or each.ran_us >= 0 for each in batch)
        self.end(jobs, batch, lost=lost and on_record)
        if twice:
            self.end(jobs, batch, repeated=True)

    def end(self, jobs: list[Claimed], batch: list[Settled], *, lost: bool = False, repeated: bool = False) -> set[str]:
        self.step = "broken"
        repeated = repeated and _route(jobs[0]) != "keyed"
        keys = {job.limit_key for job in jobs if job.limit_key is not None}
        held = [each for each in batch if self.model.held(each.id, each.token)]
        expected = self.model.settle(batch, keys, repeated=repeated or lost)
        for real, promises in zip(self.reals, self.promises, strict=True):
            real.database.loses = lost
            answer = real.settle(jobs, batch, repeated=repeated)
            real.database.loses = False
            for each in batch:
                if each.id in answer and (each in held or not (repeated or lost)):
                    promises.accept(each.id, each.token)
            assert answer == expected, f"settle {batch}: the model says {expected}, {_kind(real)} says {answer}"
        self.step = "settle"
        return expected

    @some_beliefs
    @rule(which=which, first=which, n=few, lost=lost)
    def give_back(self, which: int, first: int, n: int, lost: bool) -> None:
        self.do("give_back", [(job.id, job.token) for job in self.drawn(which, first, n)], lost=lost)

    @some_beliefs
    @rule(which=which, first=which, lost=lost)
    def park(self, which: int, first: int, lost: bool) -> None:
        """The arguments of a job do not fit the code that has it."""
        self.set_aside(self.drawn(which, first, 1)[0], lost)

    def set_aside(self, job: Claimed, lost: bool) -> None:
        self.step = "broken"
        keys = [] if job.limit_key is None else [job.limit_key]
        expected = self.model.park(job.id, job.token, "old", keys)
        for real in self.reals:
            real.database.loses = lost
            answer = real.park(job, "old")
            real.database.loses = False
            assert lost or answer == expected, f"park {job}: the model says {expected}, {_kind(real)} says {answer}"
        self.step = "park"

    # -- short stories, which steps drawn one by one seldom tell ----------------------------------------------

    def speak(self, job: Claimed, verb: str, how: str) -> None:
        """A worker says something about a run that it believes to hold."""
        match verb:
            case "renew":
                self.do("renew", [(job.id, job.token)], LEASE)
            case "give_back":
                self.do("give_back", [(job.id, job.token)])
            case "park":
                self.set_aside(job, lost=False)
            case _:
                self.end([job], [_ended(job, how, ran=True)])

    def then(self, name: str, *args: Any) -> Any:
        """A step in the middle of a story, judged as any other."""
        answer = self.do(name, *args)
        self.all_is_as_the_model_says()
        return answer

    @rule(which=which, first=which, verb=sayings, how=outcomes)
    def speak_too_late(self, which: int, first: int, verb: str, how: str) -> None:
        """A worker stands still past its lease, its runs are given to another, and then it goes on."""
        self.then("enqueue", self.new("b", ""))
        self.claim_all(which)
        self.wait(16)
        self.rescue(None)
        self.all_is_as_the_model_says()
        self.wait(3)
        self.claim_all(which + 1)
        late = [job for job in self.believes[self.worker(which)] if self.is_anothers(job)]
        if late:
            self.speak(_pick(late, first), verb, how)

    def is_anothers(self, job: Claimed) -> bool:
        now = self.model.jobs.get(job.id)
        return now is not None and now.place == "running" and now.token != job.token

    @rule(which=which, first=which, verb=sayings, how=outcomes)
    def stop(self, which: int, first: int, verb: str, how: str) -> None:
        """Somebody asks that a run stops, and its worker says something else."""
        self.then("enqueue", self.new("b", ""))
        self.claim_all(which)
        held = [job for job in self.believes[self.worker(which)] if self.model.held(job.id, job.token)]
        if held:
            self.then("cancel", _pick(held, first).id, "stop")
            self.speak(_pick(held, first), verb, how)

    @rule(which=which, renews=st.sampled_from([True, True, False]))
    def rescue_slowly(self, which: int, renews: bool) -> None:
        """Between a sweep's look and what it does about it a worker comes back."""
        self.then("enqueue", self.new("b", ""))
        self.claim_all(which)
        self.wait(16)
        self.then("see_lapsed")
        if renews:
            pairs = {job.id: (job.id, job.token) for job in self.believes[self.worker(which)]}
            self.then("renew", list(pairs.values()), LEASE)
        self.do("rescue_seen")

    @some_recurring
    @rule(which=which, back=st.booleans())
    def switch_off(self, which: int, back: bool) -> None:
        """A recurring job is claimed, perhaps given back unharmed, then disabled and enabled."""
        self.claim_all(which)
        job_id = self.any_recurring(which)
        job = self.model.jobs.get(job_id)
        if back and job is not None and job.place == "running":
            self.then("give_back", [(job.id, job.token)])
        self.then("set_enabled", job_id, False, "why")
        self.do("set_enabled", job_id, True, None)

    @rule(verb=st.sampled_from(["cancel", "end_by_hand"]))
    def bring_back(self, verb: str) -> None:
        """A job ends by somebody's hand, and comes back by somebody's hand."""
        job_id, _ = self.then("enqueue", self.new("b", "t"))
        self.then(verb, job_id, *(("stop",) if verb == "cancel" else ("failed", "by hand")))
        self.do("retry", job_id)

    @rule(which=which, gate=st.sampled_from(GATES), slots=st.sampled_from([1, 2]), late=st.booleans())
    def crowd(self, which: int, gate: Gate, slots: int, late: bool) -> None:
        """More jobs come than a limit lets run; one worker does not know of it, and one has stood still."""
        for _ in range(3):
            self.then("enqueue", self.new("a", "t"))
        self.then("set_limit", *gate, slots)
        self.then("claim", LANES, 4, nth_id(0, kind=9), LEASE, (), False, None)
        self.claim_all(which)
        if late:
            self.wait(16)
        self.claim_all(which + 1)
        if any(self.believes.values()):
            self.renew(which, lost=False)

    @rule(which=which)
    def crash(self, which: int) -> None:
        """A worker process is killed; another is started."""
        worker = self.worker(which)
        del self.believes[worker]
        self.dead.append(worker)
        self.start_worker()

    @precondition(lambda self: self.dead)
    @rule(which=which)
    def rescue_dead(self, which: int) -> None:
        worker = _pick(self.dead, which)
        self.dead.remove(worker)
        self.rescue(worker)

    @rule(lost=lost)
    def rescue_lapsed(self, lost: bool) -> None:
        self.rescue(None, lost)

    def rescue(self, worker: str | None, lost: bool = False) -> None:
        self.step = "broken"
        expected = self.model.rescue(worker)
        for real in self.reals:
            real.database.loses = lost
            answer = real.rescue_lapsed() if worker is None else real.rescue_dead(worker)
            real.database.loses = False
            assert answer == expected, f"{expected} runs were to be rescued, and {_kind(real)} rescued {answer}"
        self.step = "rescue"

    # -- operators --------------------------------------------------------------------------------------------

    def any_id(self, which: int, *, running: bool) -> str:
        """Any job, or one that runs if there is any; seldom one that nobody knows."""
        if which == 30:
            return nth_id(2**40)
        held = [job.id for job in self.model.jobs.values() if job.place == "running"]
        return str(_pick(sorted((running and held) or self.model.jobs, reverse=True), which))

    @some_jobs
    @rule(verb=verbs, which=which, much=st.booleans(), lost=lost)
    def operate(self, verb: str, which: int, much: bool, lost: bool) -> None:
        options: dict[str, tuple[object, ...]] = {
            "cancel": ("stop",),
            "end_by_hand": ("failed", "by hand"),
            "set_priority": (80 if much else 0,),
            "reschedule": (us(4) if much else 0,),
        }
        self.do(verb, self.any_id(which, running=much and verb == "cancel"), *options.get(verb, ()), lost=lost)

    @some_jobs
    @rule(which=which)
    def meddle(self, which: int) -> None:
        """A tenant tries to look at and change what is not its own."""
        job_id = self.any_id(which, running=False)
        job = self.model.jobs.get(job_id)
        stranger = "u" if job is not None and job.tenant == "t" else "t"
        self.step = "broken"
        for real in self.reals:
            nothing: list[object] = [None, [], ("unknown", None), ("unknown", None), "unknown", "unknown", False, False]
            assert real.meddle(job_id, stranger) == nothing, f"I10: {stranger} got at {job_id}"
            check_tenant(real, "t")
        self.step = "meddle"

    @rule(door=st.sampled_from(DOORS), seconds=st.sampled_from([None, 3, 30]))
    def pause(self, door: tuple[str, str], seconds: int | None) -> None:
        self.do("pause", *door, None if seconds is None else us(seconds))

    @rule(door=st.sampled_from(DOORS))
    def resume(self, door: tuple[str, str]) -> None:
        self.do("resume", *door)

    @rule(gate=st.sampled_from(GATES), slots=st.sampled_from([None, 0, 1, 2]))
    def set_limit(self, gate: Gate, slots: int | None) -> None:
        self.do("set_limit", *gate, slots)

    @rule(slots=st.sampled_from([None, 0, 1, 3]), group=st.booleans())
    def set_limit_of_keys(self, slots: int | None, group: bool) -> None:
        if group:
            self.do("set_group", slots, LIMIT_KEYS)
        else:
            self.do("set_key_limit", "a/x", slots)

    # -- recurring jobs ---------------------------------------------------------------------------------------

    @rule(
        task=tasks,
        tenant=tenants,
        overlap=st.sampled_from(["skip", "queue", "allow"]),
        misfire=st.sampled_from(["once", "all"]),
        backs_off=st.booleans(),
        limited=st.booleans(),
    )
    def recur(self, task: str, tenant: str, overlap: str, misfire: str, backs_off: bool, limited: bool) -> None:
        self.made += 1
        rule = Schedule(("@every 10s",)).to_json()
        new = NewRecurring(
            id=nth_id(self.made), tenant=tenant, task=task, key=overlap, rule=rule, queue="default", args="{}",
            priority=0, retry=BACKOFF.to_data(), timeout_us=None, name=None, description=None, misfire=misfire,
            grace_us=us(3600), cap=3, overlap=overlap, failure="backoff" if backs_off else "advance", pause_after=3,
            tags=None, created_by=None, declared="the same", limit_key=f"{task}/x" if limited else None,
        )  # fmt: skip
        self.do("recur", new)

    def any_recurring(self, which: int) -> str:
        return nth_id(2**40) if which == 30 else str(_pick(sorted(self.model.recurring), which))

    @some_recurring
    @rule(verb=st.sampled_from(["enable", "disable", "disable", "run_now", "delete_recurring"]), which=which, lost=lost)
    def operate_recurring(self, verb: str, which: int, lost: bool) -> None:
        job_id = self.any_recurring(which)
        if verb in ("enable", "disable"):
            self.do("set_enabled", job_id, verb == "enable", "why", lost=lost)
        else:
            self.do(verb, job_id, lost=lost)

    # -- time and upkeep --------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.4, 5.0, 16.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.step = "wait"

    @some_jobs
    @rule(state=st.sampled_from(["succeeded", "failed", "cancelled"]), later=st.booleans(), lost=lost)
    def prune(self, state: str, later: bool, lost: bool) -> None:
        if later:
            self.wait(16)
        self.do("prune_jobs", state, us(10), lost=lost)
        self.all_is_as_the_model_says()
        self.do("prune_rest")

    @rule(key=st.sampled_from(["k", "l"]))
    def prune_within_a_window(self, key: str) -> None:
        """A job that has ended is kept while its key says that it stands for others."""
        self.enqueue_unique(key, ("skip", "window"), delay=0, limited=False, lost=False)
        self.all_is_as_the_model_says()
        self.then("cancel", nth_id(self.made), "stop")
        self.wait(16)
        self.prune("cancelled", later=False, lost=False)

    @some_jobs
    @rule(task=tasks)
    def deploy(self, task: str) -> None:
        """Another version of the code has another chance with what did not fit the last one."""
        self.do("release_parked", task, "new")

    def finish_all(self) -> None:
        """Open everything, let nobody disturb, and work: every job ends, none is left that nobody will ever run."""
        for door in DOORS:
            self.do("resume", *door)
        for gate in GATES:
            self.do("set_limit", *gate, None)
        self.do("set_key_limit", "a/x", None)
        self.do("set_group", 2, LIMIT_KEYS)
        for job_id in list(self.model.recurring):
            self.do("delete_recurring", job_id)
            self.all_is_as_the_model_says()
        worker = self.worker(0)
        for _ in range(100):
            self.clock.advance(70)
            self.rescue(None)
            self.all_is_as_the_model_says()
            for task in TASKS:
                self.do("release_parked", task, "new")
            self.do("look")
            claimed = [*self.do("claim", LANES, 50, worker, LEASE, (), False, None)]
            claimed += self.do("claim", LANES, 50, worker, LEASE, (), True, None)
            self.all_is_as_the_model_says()
            for job in [self.model.claimed(job_id) for job_id, _, _ in claimed]:
                self.end([job], [_ended(job, "succeeded", True)])
            if all(job.place == "ended" for job in self.model.jobs.values()):
                break
        self.all_is_as_the_model_says()
        left = {job.id: (job.place, job.reason) for job in self.model.jobs.values() if job.place != "ended"}
        assert not left, f"jobs that nobody will ever run: {left}"


def _pick(some: list[Any], which: int) -> Any:
    return some[which % len(some)]


def _kind(real: Real) -> str:
    return "PostgreSQL" if real.raw.is_postgres else "SQLite"


def _route(job: Claimed) -> str:
    """By which call of the store a run is settled."""
    return {HOLD["recurs"]: "recurs", HOLD["queued"]: "keyed", HOLD["live"]: "keyed"}.get(job.hold, "plain")


def _ended(job: Claimed, how: str, ran: bool) -> Settled:
    """How a run ended, in the words of the domain."""
    ran_us = 1_000
    error = {"retry": Retry(timedelta(seconds=3)), "snoozed": Snooze(timedelta(seconds=4))}.get(how, ValueError("oops"))
    match how:
        case "succeeded":
            return Settled(job.id, job.token, "succeeded", "succeeded", ran_us=ran_us)
        case "cancelled":
            return outcome.cancelled(job, ran_us, "stopped", None)
        case "released":
            return outcome.released(job, ran_us if ran else -1)
        case "expired":
            return outcome.expired(job)
        case "died":
            return outcome.after_child_death(
                job, "its child ended", crash_limit=CRASH_LIMIT, ran_us=ran_us, log=None, random=lambda: 0.5
            )
        case _:
            policy = BACKOFF.with_max_attempts(job.max_attempts)
            return outcome.after_error(job, error, policy, ran_us=ran_us, log=None, random=lambda: 0.5)
