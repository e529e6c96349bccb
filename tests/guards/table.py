"""Every guard, in one table. What is not in it and looks like a guard is in `exceptions.py`, with the reason."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.rows.alerts import ALERTS
from tests.guards.rows.doctor import DOCTOR
from tests.guards.rows.drivers import DRIVERS
from tests.guards.rows.enqueue import ENQUEUE
from tests.guards.rows.limits import LIMITS
from tests.guards.rows.recurring import RECURRING
from tests.guards.rows.runs import RUNS
from tests.guards.rows.schema import SCHEMA
from tests.guards.rows.tenants import TENANTS
from tests.guards.rows.workers import WORKERS

GROUPS: dict[str, tuple[Guard, ...]] = {
    "Runs": RUNS,
    "Enqueues and unique keys": ENQUEUE,
    "Limits": LIMITS,
    "Recurring jobs": RECURRING,
    "Workers": WORKERS,
    "Databases": DRIVERS,
    "Unique indexes": SCHEMA,
    "Alerts": ALERTS,
    "The doctor": DOCTOR,
    "Tenants": TENANTS,
}
GUARDS = tuple(guard for guards in GROUPS.values() for guard in guards)
