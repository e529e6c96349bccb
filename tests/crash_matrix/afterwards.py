"""Life goes on: workers, rescuers and upkeep after a failure, until every job has ended."""

from __future__ import annotations

from duly.domain.limits import Says
from duly.domain.records import Lane, Settled
from duly.store.store import Store
from duly.testing import TestClock
from tests.model.promises import Promises
from tests.model.real import Real
from tests.store.factory import OTHER_WORKER
from tests.store.raw import Raw

LEASE_US = 15_000_000
ROUNDS = 20


class Watched(Real):
    """A store that is looked at by its tables, as it is."""

    def __init__(self, raw: Raw, clock: TestClock, store: Store) -> None:
        self.raw = raw
        self.clock = clock
        self.store = store
        self.lapsed = []


class Begun(Promises):
    """The promises of a store that has a past."""

    def __init__(self, real: Real) -> None:
        super().__init__(real)
        self.before = self._read()
        self.tokens = {job_id: seen.token for job_id, seen in self.before.items()}
        self._check_limits()


def work_off(real: Watched) -> None:
    """Open everything, let time pass, and have another worker rescue and work: no job is left that nobody will run."""
    _open(real)
    left: list[tuple[object, ...]] = []
    for _ in range(ROUNDS):
        real.clock.advance(3_700)
        real.rescue_lapsed()
        for (task,) in real.raw.rows("SELECT DISTINCT task FROM duly.jobs"):
            real.store.release_parked(str(task), "another mark")
        real.look()
        real.store.gates.sweep("")
        _work(real)
        left = [row for table in ("scheduled", "waiting", "parked", "running") for row in _rows(real, table)]
        if not left:
            return
    raise AssertionError(f"jobs that nobody will ever run: {left}")


def _rows(real: Watched, table: str) -> list[tuple[object, ...]]:
    return [(table, *row) for row in real.raw.rows(f"SELECT * FROM duly.{table}")]


def _open(real: Watched) -> None:
    store = real.store
    real.raw.rows("DELETE FROM duly.mirrors")
    for pause in store.gates.paused():
        store.gates.resume(pause.scope, pause.name)
    real.raw.rows("DELETE FROM duly.gates WHERE scope <> 'keys'")
    for limit in store.gates.limits():
        store.gates.set_limit("keys", limit.name, Says(slots=5))
    for limit in store.gates.special_keys():
        store.gates.set_key_limit(limit.name, Says())
    for job in store.recurring_jobs():
        store.run(lambda job_id=job.id: store.recurring.delete(job_id))  # type: ignore[misc]


def _work(real: Watched) -> None:
    """Claim everything that is due, and succeed with it."""
    for (queue,) in real.raw.rows("SELECT DISTINCT queue FROM duly.waiting"):
        rows = real.raw.rows(f"SELECT DISTINCT tenant, task FROM duly.waiting WHERE queue = '{queue}'")
        lanes = [Lane(str(tenant), str(task)) for tenant, task in rows]
        for suspect in (False, True):
            jobs = real.store.claim(str(queue), lanes, 100, worker_id=OTHER_WORKER, lease_us=LEASE_US, suspect=suspect)
            batch = [Settled(job.id, job.token, "succeeded", "succeeded", ran_us=1) for job in jobs]
            accepted = real.settle(jobs, batch)
            assert accepted == {job.id for job in jobs}, f"of {[job.id for job in jobs]} only {accepted} were accepted"
