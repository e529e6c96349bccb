"""The commands that an answer ends with, fit to be copied into a shell; all here, so that a test can try them."""

from __future__ import annotations

import shlex

FIX = "duly doctor --fix"
CHECK = "duly doctor"


def command(*words: str) -> str:
    """A command of duly's."""
    return shlex.join(("duly", *words))


def resume(scope: str, name: str) -> str:
    """Let what is paused go on."""
    return command("resume", f"--{scope}", name)


def look_at_runs(scope: str, name: str) -> str:
    """See what holds the slots of a limit."""
    return command("jobs", "list", "--state", "running", f"--{scope}", name)


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
