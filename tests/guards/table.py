"""Every guard, in one table. What is not in it and looks like a guard is in `exceptions.py`, with the reason."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

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

_ROWS: dict[str, tuple[Guard, ...]] = {
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


def reds() -> dict[str, tuple[str, ...]]:
    """By guard, the tests that go red without it; `reds.toml` names them by file and test."""
    found: dict[str, list[str]] = {}
    with (Path(__file__).parent / "reds.toml").open("rb") as file:
        for module, tests in tomllib.load(file).items():
            for test, guards in tests.items():
                for guard in guards:
                    found.setdefault(guard, []).append(f"{module}::{test}")
    return {name: tuple(tests) for name, tests in found.items()}


_REDS = reds()
GROUPS = {
    title: tuple(replace(guard, tests=_REDS.get(guard.name, ())) for guard in guards) for title, guards in _ROWS.items()
}
GUARDS = tuple(guard for guards in GROUPS.values() for guard in guards)
