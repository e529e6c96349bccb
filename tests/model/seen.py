"""The model as people would see it: in the columns in which `Real` shows its store, so that the two can be compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.model.facts import Job
from tests.model.model import Model

Shown = dict[str, tuple[object, ...]]


def jobs(model: Model) -> Shown:
    return {job.id: _shown(model, job) for job in model.jobs.values()}


def _shown(model: Model, job: Job) -> tuple[object, ...]:
    reason: str | None = None
    state, run_at, token = job.place, None if job.place == "ended" else job.run_at, job.token
    if job.place == "waiting":
        state = "queued"
    elif job.place == "parked":
        state, reason = "queued", f"parked: {job.reason}"
    elif job.place == "ended":
        state, reason = job.state, job.reason
    elif job.place == "nowhere":
        it = model.recurring[job.id]
        state, reason, run_at, token = "disabled", it.disabled_reason, it.next_run_at, it.token
    held = (job.worker_id, job.claimed_at, job.cancel_at) if job.place == "running" else (None, None, None)
    finished_at = job.finished_at if job.place == "ended" else None
    of_the_job = (job.args, job.priority, job.tenant, job.task)
    return (state, reason, run_at, token, job.attempt, job.crashes, *held, finished_at, *of_the_job)


def counts(model: Model) -> dict[str, int]:
    found = Counter({"scheduled": 0, "waiting": 0, "running": 0})
    for job in model.jobs.values():
        if job.place == "parked":
            found[f"parked {job.reason}"] += 1
        elif job.place != "nowhere":
            found[job.state if job.place == "ended" else job.place] += 1
    return dict(found)


def unique_keys(model: Model) -> dict[tuple[str, str], tuple[object, ...]]:
    return {name: (key.holder, key.scope, key.until, key.following) for name, key in model.keys.items()}


def recurring(model: Model) -> Shown:
    return {
        job_id: (it.enabled, it.next_run_at, it.tick_at, it.last_tick_at, it.failures, it.last_outcome, it.disabled_by)
        for job_id, it in model.recurring.items()
    }


def limits(model: Model) -> dict[tuple[str, str], int]:
    return {gate: door.slots for gate, door in model.doors.items() if gate[0] != "key" and door.slots is not None}


def held_by(model: Model, worker_id: str) -> list[tuple[str, int]]:
    jobs = model.jobs.values()
    return sorted((job.id, job.token) for job in jobs if job.place == "running" and job.worker_id == worker_id)


def same(expected: Any, found: Any, where: str) -> None:
    """Fail, with the difference, if the model and the store do not show the same."""
    if expected == found:
        return
    if isinstance(expected, dict):
        keys = [key for key in {*expected, *found} if expected.get(key) != found.get(key)]
        expected, found = ({key: some.get(key) for key in keys} for some in (expected, found))
    raise AssertionError(f"{where}:\n  the model has {expected}\n  the store has {found}")
