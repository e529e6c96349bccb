"""The commands that an answer ends with, fit to be copied into a shell; all here, so that a test can try them."""

from __future__ import annotations

import shlex

from duly.domain.limits import QUOTAS
from duly.store.ops_why import GateFacts

FIX = "duly doctor --fix"
CHECK = "duly doctor"


def command(*words: str) -> str:
    """A command of duly's."""
    return shlex.join(("duly", *words))


def resume(scope: str, name: str) -> str:
    """Let what is paused go on."""
    return command("resume", f"--{scope}", name)


def raise_slots(gate: GateFacts) -> str:
    """Let one more run. The rest of what the gate says is said again, since setting a limit replaces all of it."""
    slots = str(max(gate.live, gate.slots or 0) + 1)
    if gate.scope == "tenant":
        return command("quota", gate.name, "--running", slots)
    return command("limits", "set", f"--{gate.scope}", gate.name, "--concurrency", slots, *_said(gate))


def raise_rate(gate: GateFacts) -> str:
    """Let twice as many start."""
    assert gate.rate is not None
    if gate.scope in QUOTAS:
        return command("quota", gate.name, f"--per-{gate.scope}", str(gate.rate.n * 2))
    faster = gate._replace(rate=gate.rate._replace(n=gate.rate.n * 2), own_rate=True)
    slots = () if gate.slots is None or gate.scope == "key" else ("--concurrency", str(gate.slots))
    return command("limits", "set", f"--{gate.scope}", gate.name, *slots, *_said(faster))


def _said(gate: GateFacts) -> tuple[str, ...]:
    rate, most = gate.rate if gate.own_rate else None, gate.most_waiting
    burst = () if rate is None or rate.burst is None else ("--burst", str(rate.burst))
    return (
        *(() if rate is None else ("--rate", str(rate))),
        *burst,
        *(() if most is None else ("--most-waiting", str(most))),
    )


def look_at_errors(task: str) -> str:
    """See how the last runs of a task ended."""
    return command("runs", "--task", task)


def start_worker(queue: str = "default") -> str:
    """Start a worker that takes from a queue."""
    return command("worker", "app:jobs", *(() if queue == "default" else ("--queue", queue)))


def show(job_id: str) -> str:
    """See everything about a job."""
    return command("jobs", "show", job_id)


def retry(job_id: str) -> str:
    """Run a job now."""
    return command("jobs", "retry", job_id)


def cancel(job_id: str) -> str:
    """End a job."""
    return command("jobs", "cancel", job_id)


def boost(job_id: str) -> str:
    """Move a job forward."""
    return command("jobs", "boost", job_id)


def schedule(verb: str, job_id: str) -> str:
    """Do something about a recurring job."""
    return command("schedules", verb, job_id)
