"""Two tenants with the same of everything: jobs in every state, unique keys, recurring jobs by key and name, audit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from duly import Duly, Tenant
from duly.domain.limits import Says
from duly.domain.records import Lane
from tests.store.raw import Raw

LATER = datetime.now(UTC) + timedelta(days=1)
LEASE_US = 600_000_000
WITH_TENANT = ("jobs", "scheduled", "waiting", "parked", "running", "rollups", "unique_keys", "schedules", "audit")
WITH_JOB = {"ended": "id", "runs": "job_id", "recurring": "id"}


class Owned:
    """What one tenant has, by what it is."""

    def __init__(self, handle: Tenant) -> None:
        self.handle = handle
        self.secret = f"secret of {handle.name}"
        self.ids: dict[str, str] = {}


class World:
    """acme, through whose handle everything is done, and globex, of whom nothing may be seen, counted or changed."""

    def __init__(self, jobs: Duly, raw: Raw) -> None:
        self.jobs = jobs
        self.raw = raw

        @jobs.task
        def work(secret: str) -> str:
            print(secret)
            return secret

        @jobs.task
        def fail(secret: str) -> None:
            raise ValueError(secret)

        @jobs.task
        def hold(secret: str) -> None: ...

        self.work, self.fail, self.hold = work, fail, hold
        self.acme = Owned(jobs.tenant("acme"))
        self.globex = Owned(jobs.tenant("globex"))
        for owned in (self.acme, self.globex):
            self._ended(owned)
        jobs.tick(100)
        for owned in (self.acme, self.globex):
            self._live(owned)

    def _ended(self, owned: Owned) -> None:
        tenant, args = owned.handle, {"secret": owned.secret}
        owned.ids["succeeded"] = tenant.enqueue(self.work, args, tags=["t"]).id
        owned.ids["failed"] = tenant.enqueue(self.fail, args, max_attempts=1, tags=["t"]).id
        owned.ids["cancelled"] = tenant.enqueue(self.work, args, delay="1h").id
        tenant.cancel(owned.ids["cancelled"], owned.secret)

    def _live(self, owned: Owned) -> None:
        tenant, args = owned.handle, {"secret": owned.secret}
        owned.ids["waiting"] = tenant.enqueue(self.work, args, unique="same", tags=["t"]).id
        owned.ids["scheduled"] = tenant.enqueue(self.work, args, delay="1h").id
        owned.ids["running"] = tenant.enqueue(self.hold, args).id
        lanes = [Lane(tenant.name, "hold")]
        [claimed] = self.jobs.store.claim("default", lanes, 1, worker_id=str(uuid4()), lease_us=LEASE_US)
        assert claimed.id == owned.ids["running"]
        again = tenant[self.work].recur("same", every="1h", start_at=LATER, args=args, name="nightly")
        owned.ids["recurring"] = again.id
        off = tenant[self.work].recur("off", every="1h", start_at=LATER, args=args)
        off.disable(owned.secret)
        owned.ids["disabled"] = off.id
        registered = tenant.register("same", LATER, "1h", lambda: None)
        owned.ids["registered"] = registered.id
        with tenant.acting_as(f"boss of {tenant.name}"):
            tenant.boost(owned.ids["waiting"])
        self.jobs.set_weight(tenant.name, 3)
        self.jobs.store.gates.set_limit("tenant", tenant.name, Says(slots=5))

    def rows_of(self, tenant: str) -> dict[str, list[tuple[Any, ...]]]:
        """Everything in the tables that is a tenant's."""
        own = f"(SELECT id FROM duly.jobs WHERE tenant = '{tenant}')"
        asked = {table: f"tenant = '{tenant}'" for table in WITH_TENANT}
        asked |= {table: f"{column} IN {own}" for table, column in WITH_JOB.items()}
        asked |= {"gates": f"name = '{tenant}'", "tenants": f"name = '{tenant}'"}
        return {
            table: sorted((self.raw.rows(f"SELECT * FROM duly.{table} WHERE {which}")), key=repr)
            for table, which in asked.items()
        }
