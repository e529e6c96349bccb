"""Decides how a run ended and what becomes of its job. Values in, values out; the store makes it true."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from duly.domain.durations import human, micros
from duly.domain.errors import Cancel, RateLimited, Retry, Snooze
from duly.domain.records import Claimed, Lapsed, Settled
from duly.domain.retry import Backoff, Decision, after_failure
from duly.domain.text import clean_text, describe_exception, safe_repr

Random = Callable[[], float]
MOST_REASON = 1_000


def released(job: Claimed, ran_us: int = -1) -> Settled:
    """Give a job back unharmed: no attempt is counted, no error recorded."""
    return Settled(job.id, job.token, "queued", "released", uncounted=1, crashes=job.crashes, ran_us=ran_us)


def expired(job: Claimed) -> Settled:
    """A job that could not start in time is cancelled without a run."""
    return Settled(job.id, job.token, "cancelled", "expired", uncounted=1, reason="expired before it could start")


def missed(job: Claimed, late_us: int, grace_us: int) -> Settled:
    """An occurrence that could not start in time is left out."""
    late, grace = (human(timedelta(microseconds=us)) for us in (late_us, grace_us))
    error = f"not run: {late} late, and {grace} are allowed"
    return Settled(job.id, job.token, "cancelled", "expired", uncounted=1, error_kind="Missed", error=error)


def cancelled(job: Claimed, ran_us: int, reason: object, log: str | None) -> Settled:
    """A run that was asked to stop has stopped."""
    text = clean_text(reason if isinstance(reason, str) else safe_repr(reason), MOST_REASON) if reason else "cancelled"
    return Settled(job.id, job.token, "cancelled", "cancelled", ran_us=ran_us, reason=text, log=log)


def unrecordable(settled: Settled) -> Settled:
    """The same end without what the database refused: a run that has ended must be recorded whatever it left."""
    why = "what this run left could not be recorded"
    failed = settled.outcome == "failed"
    return settled._replace(
        reason=None if settled.reason is None else why,
        error_kind="Unrecordable" if failed else None,
        error=why if failed or settled.state == "parked" else None,
        traceback=None,
        result=None,
        log=None,
    )


def mirror_failed(settled: Settled, error: str, *, delay: timedelta | None = None) -> Settled:
    """A run whose change could not be mirrored in the application's tables has failed, whatever it did.

    `delay`: how long its job backs off, if its failures do.
    """
    text = clean_text(f"its mirror failed: {error}", MOST_REASON)
    if settled.outcome == "crashed":  # that counts for more
        return settled._replace(error=f"{settled.error} And {text}")
    state, delay_us = ("failed", 0) if delay is None else ("scheduled", micros(delay))
    return settled._replace(
        state=state, outcome="failed", delay_us=delay_us, error_kind="MirrorFailed", error=text, result=None
    )


def timed_out(timeout_us: int) -> TimeoutError:
    """The error of a run that took too long."""
    return TimeoutError(f"timed out after {human(timedelta(microseconds=timeout_us))}")


def after_error(
    job: Claimed, error: BaseException, policy: Backoff, *, ran_us: int, log: str | None, random: Random
) -> Settled:
    """Say what follows from an exception that a handler raised: a signal to steer, or a failure."""
    match error:
        case Snooze():
            delay = micros(error.delay)
            block = delay if isinstance(error, RateLimited) else 0
            return Settled(
                job.id,
                job.token,
                "scheduled",
                "snoozed",
                delay_us=delay,
                uncounted=1,
                ran_us=ran_us,
                reason=str(error),
                log=log,
                block_us=block,
            )
        case Cancel():
            return cancelled(job, ran_us, error.reason, log)
        case Retry():
            decision = _steered_retry(job, error, policy, random)
        case _:
            decision = after_failure(policy, attempt=job.attempt, exc=error, random=random)
    text = describe_exception(error)
    return Settled(
        job.id,
        job.token,
        "scheduled" if decision.delay is not None else "failed",
        "failed",
        delay_us=0 if decision.delay is None else micros(decision.delay),
        ran_us=ran_us,
        reason=None if decision.retry else decision.reason,
        error_kind=text.kind,
        error=text.message,
        traceback=text.traceback,
        log=log,
    )


def _steered_retry(job: Claimed, error: Retry, policy: Backoff, random: Random) -> Decision:
    """A handler asks for another run: its delay counts, its attempts do too."""
    decision = after_failure(policy, attempt=job.attempt, exc=None, random=random)
    if decision.retry and error.after is not None:
        return Decision(delay=error.after, reason=decision.reason)
    return decision


_CRASH = {
    "lease": "its worker stopped renewing the lease",
    "deadline": "it ran past its deadline and its worker did not stop it",
    "gone": "its worker process ended",
}


def after_crash(run: Lapsed, *, crash_limit: int, random: Random) -> Settled:
    """Say what becomes of a job whose worker is gone: again at once, later, or failed if it kills workers."""
    why = _CRASH[run.why]
    error = f"The run was lost: {why}."
    settled = Settled(
        run.id, run.token, "queued", "crashed", crashes=run.crashes + 1, error_kind="WorkerLost", error=error
    )
    poison = f"took their worker with them ({why})"
    return _crashed(settled, run, why, poison, crash_limit=crash_limit, random=random)


def after_child_death(
    job: Claimed, how: str, *, crash_limit: int, ran_us: int, log: str | None, random: Random
) -> Settled:
    """Say what becomes of a job whose child process ended under it: the same, though the worker lives."""
    settled = Settled(
        job.id,
        job.token,
        "queued",
        "crashed",
        crashes=job.crashes + 1,
        ran_us=ran_us,
        error_kind="ProcessDied",
        error=f"{how[:1].upper()}{how[1:]}.",
        log=log,
    )
    return _crashed(settled, job, how, f"ended their process ({how})", crash_limit=crash_limit, random=random)


def _crashed(
    settled: Settled, run: Lapsed | Claimed, why: str, poison: str, *, crash_limit: int, random: Random
) -> Settled:
    if settled.crashes >= crash_limit:
        return settled._replace(state="failed", reason=f"poison: {settled.crashes} runs in a row {poison}")
    if run.attempt >= run.max_attempts:
        return settled._replace(state="failed", reason=f"attempts used up ({run.attempt} of {run.max_attempts}); {why}")
    if settled.crashes == 1:
        return settled
    delay = Backoff.from_data(run.retry, run.max_attempts).delay(run.attempt, random)
    return settled._replace(state="scheduled", delay_us=micros(delay))
