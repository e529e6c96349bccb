"""Any order of what producers, workers and operators do to jobs with keys leaves the tables sound, and all jobs end."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from duly.domain.limits import Breaker, Rate, Says
from duly.domain.records import Claimed
from duly.domain.states import State
from duly.store.opening import open_database
from duly.store.ops_keys import Freed
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.limits.keyed import Keyed
from tests.store import invariants
from tests.store.factory import SETTLES
from tests.store.raw import Raw

KEYS = ("x", "y")
SPEEDS = (None, Rate(1, us(1), 1), Rate(2, us(1), 3))
keys = st.sampled_from(KEYS)
few = st.integers(1, 4)


class Machine(RuleBasedStateMachine):
    """A store with two keys, each with two slots, and everything that can be done to their jobs."""

    raw: Raw

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.clock = TestClock()
        self.store = Store(open_database(self.raw.url, self.clock, synchronous="off"))
        self.stack.callback(self.store.close)
        self.keyed = Keyed(self.store, self.clock, self.raw)
        self.keyed.empty()
        self.keyed.says(2, breaker=Breaker(rate=0.5, least=3, cooldown=5))
        self.running: dict[str, Claimed] = {}
        self.ids: list[str] = []

    def teardown(self) -> None:
        try:
            self.finish_all()
        finally:
            self.stack.close()

    def finish_all(self) -> None:
        """Open every key and work: no job is forgotten."""
        for key in KEYS:
            self.keyed.resume(key)
            self.store.gates.set_key_limit(f"send/{key}", Says())
        self.set_group(slots=2, rate=None)
        for _ in range(400):
            self.clock.advance(70)
            self.keyed.look()
            self.claim(5)
            for suspect in self.keyed.grab(1, metered=True, suspect=True):
                self.running[suspect.id] = suspect
            if not self.running and not any(self.raw.count(each) for each in ("waiting", "parked", "scheduled")):
                break
            for job in list(self.running.values()):
                self.keyed.end(job, counted=True)
            self.running.clear()
        left = {place: self.raw.count(place) for place in ("scheduled", "waiting", "parked", "running")}
        assert not any(left.values()), f"jobs that nobody will ever run: {left}"
        assert self.raw.count("ended") == self.raw.count("jobs")

    @invariant()
    def sound(self) -> None:
        invariants.check(self.raw, self.clock.now_us())

    # -- producers --------------------------------------------------------------------------------------------

    @rule(key=keys, n=few, priority=st.sampled_from([0, 0, 50]), delay=st.sampled_from([0, 0, 3]))
    def enqueue(self, key: str, n: int, priority: int, delay: int) -> None:
        for _ in range(n):
            self.ids.append(
                self.keyed.enqueue(limit_key=f"send/{key}", priority=priority, delay_us=us(delay), max_attempts=20)
            )

    # -- workers ----------------------------------------------------------------------------------------------

    @rule()
    def look(self) -> None:
        self.keyed.look()

    @rule(n=few)
    def claim(self, n: int) -> None:
        for job in self.keyed.grab(n, metered=True):
            assert job.id not in self.running or self.running[job.id].token < job.token
            self.running[job.id] = job

    @precondition(lambda self: self.running)
    @rule(data=st.data(), how=st.sampled_from(sorted(SETTLES)))
    def settle(self, data: Any, how: str) -> None:
        jobs = data.draw(st.lists(st.sampled_from(sorted(self.running)), min_size=1, max_size=3, unique=True))
        some = [self.running.pop(job_id) for job_id in jobs]
        self.keyed.end(*some, how=how, counted=True)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def park(self, data: Any) -> None:
        job = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        freed = Freed([job.limit_key or ""])
        self.store.park(job.id, job.token, reason="arguments", detail="no", mark="old", freed=freed)
        self.store.release_parked("send", "new")

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def give_back(self, data: Any) -> None:
        job = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        self.store.give_back([(job.id, job.token)])

    @precondition(lambda self: self.running)
    @rule()
    def crash(self) -> None:
        """The worker is gone: its leases lapse and its runs are rescued."""
        jobs = list(self.running.values())
        self.running.clear()
        self.clock.advance(20)
        for job in jobs:
            self.keyed.end(job, how="crashed", counted=True, only_expired=True)

    # -- operators --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ids)
    @rule(
        data=st.data(),
        verb=st.sampled_from(["cancel", "retry", "delete", "boost", "sink", "later", "now", "end"]),
    )
    def operate(self, data: Any, verb: str) -> None:
        job_id = data.draw(st.sampled_from(self.ids))
        match verb:
            case "cancel":
                self.store.cancel(job_id, "stop")
            case "retry":
                self.store.retry(job_id)
            case "delete":
                self.store.delete(job_id)
            case "boost" | "sink":
                self.store.set_priority(job_id, 80 if verb == "boost" else 0)
            case "later" | "now":
                self.store.reschedule(job_id, run_at=None, delay_us=us(4) if verb == "later" else 0)
            case _:
                self.store.end_by_hand(job_id, State.FAILED, "by hand")

    @rule(key=keys, seconds=st.sampled_from([None, 2, 30]))
    def pause(self, key: str, seconds: float | None) -> None:
        self.keyed.pause(key, seconds)

    @rule(key=keys)
    def resume(self, key: str) -> None:
        self.keyed.resume(key)

    @rule(key=keys, seconds=st.sampled_from([1, 10]))
    def block(self, key: str, seconds: float) -> None:
        self.keyed.block(key, seconds)

    @rule(key=keys, slots=st.sampled_from([None, 0, 1, 3]), rate=st.sampled_from(SPEEDS))
    def set_key(self, key: str, slots: int | None, rate: Rate | None) -> None:
        self.store.gates.set_key_limit(f"send/{key}", Says.limits(slots, rate))

    @rule(slots=st.sampled_from([1, 2, 4]), rate=st.sampled_from(SPEEDS))
    def set_group(self, slots: int | None, rate: Rate | None) -> None:
        self.store.gates.set_limit("keys", "send", Says.limits(slots, rate))
        self.store.gates.rearrange("send")

    @rule(seconds=st.sampled_from([0.4, 3.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @rule()
    def prune(self) -> None:
        self.store.prune_rest(us(1_000_000))


def run(raw: Raw, examples: int, steps: int) -> None:
    machine = type("Machine", (Machine,), {"raw": raw})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=False,
        ),
    )


@pytest.mark.requirement("D6", "D7")
def test_whatever_happens_to_jobs_with_keys_none_is_lost_and_no_key_has_more_than_its_slots(raw: Raw) -> None:
    run(raw, examples=12, steps=30)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.requirement("D6", "D7")
def test_whatever_happens_to_jobs_with_keys_for_long(raw: Raw) -> None:
    run(raw, examples=100, steps=50)
