"""Recurring jobs and the times of their rules, for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from duly.cli.output import bold, coloured, moment
from duly.cli.schedules.find import label, path
from duly.cli.text import clean, clean_lines, local, plain_table, plural, relative, when
from duly.domain.clock import from_us
from duly.domain.durations import human
from duly.job import Run
from duly.recurring import RecurringJob
from duly.schedule import Schedule

LONGEST_VALUE = 2_000
RUNS_SHOWN = 10
TIMES_SHOWN = 5


def state_of(job: RecurringJob) -> str:
    """Return "running", "enabled" or "disabled"."""
    return "running" if job.running else "enabled" if job.enabled else "disabled"


def rules_of(schedule: Schedule) -> str:
    """Return the rules as they are written."""
    return " | ".join(schedule.rules) or "-"


def meaning(schedule: Schedule) -> str:
    """Return the rules, and what they mean where that is not the same words."""
    rules, text = rules_of(schedule), schedule.describe()
    if rules == "-":
        return text
    return rules if text == rules.removeprefix("@") else f"{rules}: {text}"


# -- a line in a table ------------------------------------------------------------------------------------------------

HEADERS = ("JOB", "STATE", "NEXT", "LAST", "SCHEDULE")


def row_of(job: RecurringJob, now: datetime) -> tuple[str, ...]:
    """Return a recurring job as a line of the list."""
    detail = meaning(job.schedule)
    if not job.enabled:
        detail = f"{rules_of(job.schedule)}; {why_disabled(job)}"
    return (label(job), state_of(job), _next(job, now), _last(job, now), clean(detail, 300))


def _next(job: RecurringJob, now: datetime) -> str:
    if not job.enabled:
        return "-"
    at = next_of(job)
    if at is None:
        return "-"
    return f"due {relative(at, now)}" if at < now - timedelta(seconds=1) else moment(at, now)


def next_of(job: RecurringJob) -> datetime | None:
    """Return when it runs next; of one that runs, when its rule says."""
    if not job.running:
        return job.next_run_at
    return next(iter(job.next_times(1)), None)


def _last(job: RecurringJob, now: datetime) -> str:
    if job.last_run_at is None:
        return "never"
    return f"{job.last_outcome}{in_a_row(job)} {moment(job.last_run_at, now)}"


def in_a_row(job: RecurringJob) -> str:
    """Return how many failures there were in a row, if more than one."""
    return f" x{job.consecutive_failures:,}" if job.consecutive_failures > 1 else ""


def why_disabled(job: RecurringJob) -> str:
    """Return by whom it was disabled, and why."""
    by = f"by {job.record.disabled_by}" if job.record.disabled_by else ""
    reason = job.disabled_reason if job.disabled_reason != "disabled" else ""
    return ": ".join(part for part in (by, reason) if part) or "disabled"


# -- everything about one ---------------------------------------------------------------------------------------------


def as_dict(job: RecurringJob, runs: Sequence[Run]) -> dict[str, Any]:
    """Return it as plain values, for JSON."""
    return {
        **job.to_dict(),
        "declared_in": job.record.declared_in,
        "next_times": times_as_dicts(job.next_times(TIMES_SHOWN), job.schedule.timezone),
        "runs": [run.to_dict() for run in runs],
    }


def as_text(job: RecurringJob, runs: Sequence[Run], now: datetime, *, utc: bool) -> str:
    """Return it for people."""
    lines = [f"{bold(label(job))}  {job.id}  {coloured(state_of(job))}"]
    lines += [f"  {name:<12}{clean_lines(value)}" for name, value in _facts(job, now, utc=utc) if value]
    times = job.next_times(TIMES_SHOWN)
    if times:
        lines += ["", bold("Next times" if job.enabled else "Next times, were it enabled")]
        lines += times_as_lines(times, job.schedule.timezone, now)
    if runs:
        lines += ["", bold("Last runs"), *_run_lines(runs, now, utc=utc)]
    return "\n".join(lines)


def _facts(job: RecurringJob, now: datetime, *, utc: bool) -> list[tuple[str, str]]:
    record = job.record
    asked = "; a run was asked for by hand" if job.enabled and record.tick_at is None and record.next_run_at else ""
    failures = f", {plural(record.failures, 'failure')} in a row" if record.failures else ""
    last = "never" if job.last_run_at is None else f"{record.last_outcome} {when(job.last_run_at, now, utc=utc)}"
    jobs = f"; its runs: duly jobs list --task {clean(job.task)}" if record.overlap == "allow" else ""
    return [
        ("task", path(job) if job.name else ""),
        ("description", clean(job.description or "", LONGEST_VALUE)),
        ("tenant", clean(job.tenant)),
        ("rule", clean(meaning(job.schedule), LONGEST_VALUE)),
        ("disabled", "" if job.enabled else f"{clean(why_disabled(job))}, {_at(record.disabled_at, now, utc=utc)}"),
        ("running", "" if record.running_since is None else f"since {_at(record.running_since, now, utc=utc)}"),
        ("next run", _due(next_of(job), now, utc=utc) + asked if job.enabled else ""),
        ("last run", last + failures + jobs),
        ("last error", clean_lines(job.last_error or "")),
        ("arguments", clean(json.dumps(job.args, ensure_ascii=False), LONGEST_VALUE)),
        ("queue", clean(record.queue)),
        ("priority", str(record.priority)),
        ("timeout", "" if record.timeout_us is None else human(timedelta(microseconds=record.timeout_us))),
        ("misfire", _misfire(job)),
        ("overlap", _OVERLAP[record.overlap]),
        ("failure", _FAILURE[record.failure] + _pause(record.pause_after)),
        (
            "made",
            _at(record.created_at, now, utc=utc) + (f" by {clean(record.created_by)}" if record.created_by else ""),
        ),
        ("declared in", clean(record.declared_in or "")),
    ]


_OVERLAP = {
    "skip": "skip: ticks that come while it runs are left out",
    "queue": "queue: ticks that come while it runs make one more run",
    "allow": "allow: a job of its own for each tick",
}
_FAILURE = {"backoff": "backoff: again after a while", "advance": "advance: again at the next tick"}


def _misfire(job: RecurringJob) -> str:
    match job.record.misfire:
        case "skip":
            return f"skip: not run if late by more than {human(timedelta(microseconds=job.record.grace_us))}"
        case "all":
            return f"all: each missed tick is made up for, at most {job.record.cap:,}"
        case _:
            return "once: missed ticks make one late run"


def _pause(n: int | None) -> str:
    return "" if n is None else f"; disabled after {plural(n, 'failure')} in a row"


def _due(at: datetime | None, now: datetime, *, utc: bool) -> str:
    return ("due " if at is not None and at < now - timedelta(seconds=1) else "") + when(at, now, utc=utc)


def _at(us: int | None, now: datetime, *, utc: bool) -> str:
    return when(None if us is None else from_us(us), now, utc=utc)


def _run_lines(runs: Sequence[Run], now: datetime, *, utc: bool) -> list[str]:
    rows = [
        (
            f"  {local(run.started_at, utc=utc, now=now)}",
            run.outcome,
            human(run.duration),
            clean(f"{run.error_kind}: {run.error}" if run.error_kind else "", 200),
        )
        for run in reversed(runs)
    ]
    return plain_table(("  STARTED", "OUTCOME", "TOOK", "ERROR"), rows).split("\n")


# -- times ------------------------------------------------------------------------------------------------------------


def times_as_dicts(times: Sequence[datetime], timezone: str) -> list[dict[str, str]]:
    """Return times in their zone and in UTC."""
    zone = zone_of(timezone)
    return [{"at": at.astimezone(zone).isoformat(), "utc": at.astimezone(UTC).isoformat()} for at in times]


def times_as_lines(times: Sequence[datetime], timezone: str, now: datetime) -> list[str]:
    """Return times in their zone, in UTC if that is another, and how far off they are."""
    zone = zone_of(timezone)
    exact = any(late - early < timedelta(seconds=1) for early, late in pairwise(times))
    rows = []
    for at in times:
        own = at.astimezone(zone)
        shown = [f"  {_day(own, exact=exact)}"]
        if timezone != "UTC":
            shown += [own.isoformat()[-6:], _day(at.astimezone(UTC), exact=exact) + "Z"]
        rows.append([*shown, relative(at, now)])
    headers = ["  UTC", ""] if timezone == "UTC" else [f"  {timezone}", "OFFSET", "UTC", ""]
    return plain_table(headers, rows).split("\n")


def _day(at: datetime, *, exact: bool) -> str:
    return f"{at:%a} {at.replace(tzinfo=None).isoformat(' ', 'milliseconds' if exact else 'seconds')}"


def zone_of(timezone: str) -> Any:
    """Return the zone that a schedule has checked."""
    return UTC if timezone == "UTC" else ZoneInfo(timezone)
