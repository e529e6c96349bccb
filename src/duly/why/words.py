"""Sentences about what was found. How times are written is the caller's; the data itself says them in UTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from duly.why.answer import Blocker, Reason
from duly.why.phrases import (
    Moment,
    at,
    at_until,
    because,
    by,
    capital,
    holder,
    holders,
    number,
    since,
    span,
    until,
    utc,
    what,
    when,
    workers,
)


def sentence(blocker: Blocker, moment: Moment = utc) -> str:
    """One thing that holds a job, or how it stands, in words."""
    return _WORDS[blocker.reason](blocker, moment)


def of_many(blocker: Blocker, moment: Moment = utc) -> str:
    """The same about jobs that wait for one thing together."""
    say = _OF_MANY.get(blocker.reason)
    return sentence(blocker, moment) if say is None else say(blocker, moment)


# -- a sentence for each reason ---------------------------------------------------------------------------------------


def _nowhere(b: Blocker, m: Moment) -> str:
    return "It is in no place: it will never run until that is mended."


def _two_places(b: Blocker, m: Moment) -> str:
    return f"It is in several places at once ({', '.join(b.details['places'])}): that must be mended."


def _disabled(b: Blocker, m: Moment) -> str:
    return f"It is disabled{by(b)}{since(b, m)}{because(b)}."


def _arguments(b: Blocker, m: Moment) -> str:
    return (
        f"Its arguments no longer fit the code of task {b.name!r}, so it is set aside{since(b, m)}{because(b)}. "
        "It goes on by itself when workers start with code that fits."
    )


def _expired(b: Blocker, m: Moment) -> str:
    if b.because is not None:
        return f"It could not start in time and was cancelled{at(b, m)}."
    return f"It had to start before {when(b.since, m)}: whoever takes it now cancels it."


def _not_due(b: Blocker, m: Moment) -> str:
    return f"It is not due until {when(b.until, m)}."


def _retry(b: Blocker, m: Moment) -> str:
    if "rule" in b.details:
        failures = b.details["failures"]
        times = "its last run" if failures == 1 else f"its last {failures} runs"
        told = because(b).removeprefix(": ") or "no error was kept"
        return f"It recurs ({b.details['rule']}), but {times} failed: {told}. It runs again at {when(b.until, m)}."
    attempt, most = b.details["attempt"], b.details["max_attempts"]
    return f"Run {attempt} of {most} failed{at(b, m)}{because(b)}. It is tried again at {when(b.until, m)}."


def _snoozed(b: Blocker, m: Moment) -> str:
    return f"Its handler put it off until {when(b.until, m)}."


def _recurs(b: Blocker, m: Moment) -> str:
    return f"It recurs ({b.details['rule']}): its next run is at {when(b.until, m)}."


def _unique(b: Blocker, m: Moment) -> str:
    if not b.holders:
        return f"It waits for another job with the unique key {b.name!r}, and there is none."
    return f"It follows the job with the same unique key {b.name!r}: {holder(b.holders[0], m)}."


def _parked(b: Blocker, m: Moment) -> str:
    return f"It is set aside{since(b, m)}{because(b)}."


def _paused(b: Blocker, m: Moment) -> str:
    end = until(b, m) or " until somebody resumes it"
    return f"{capital(what(b))} is paused{by(b)}{since(b, m)}{end}{because(b)}."


def _no_worker(b: Blocker, m: Moment) -> str:
    last = "" if b.since is None else f" The last was seen at {m(b.since)}."
    return f"No worker is running.{last}"


def _no_worker_for_queue(b: Blocker, m: Moment) -> str:
    served = b.details.get("queues_served")
    takes = f" Those that live take from {', '.join(map(repr, served))}." if served else ""
    return f"No live worker takes from queue {b.name!r}.{takes}"


def _unknown_task(b: Blocker, m: Moment) -> str:
    text = f"No live worker of its queue knows task {b.name!r}."
    if b.details.get("workers"):
        text += f" Workers seen: {workers(b.details['workers'])}."
    if b.details.get("suggestion"):
        text += f" {b.details['suggestion']}"
    if b.details.get("known_by_workers_of_other_queues"):
        text += (
            f" {capital(workers(b.details['known_by_workers_of_other_queues']))} know it, and take from other queues."
        )
    return text


def _blocked(b: Blocker, m: Moment) -> str:
    return f"{capital(what(b))} was asked to wait{until(b, m)}{because(b)}. It goes on by itself."


def _breaker_open(b: Blocker, m: Moment) -> str:
    return f"The circuit breaker of {what(b)} is open{because(b)}. One job is tried{at_until(b, m)}."


def _breaker_probing(b: Blocker, m: Moment) -> str:
    by = holders(b, m, len(b.holders))
    return f"The circuit breaker of {what(b)} tries one job first ({by}): if that succeeds, the others follow."


def _quota(b: Blocker, m: Moment) -> str:
    quota, per = b.details["quota"], b.details["per"]
    return f"{capital(what(b))} has had its {quota:,} runs of this {per}: it goes on{at_until(b, m)}."


def _rate(b: Blocker, m: Moment) -> str:
    return f"{capital(what(b))} may start {b.details['rate']} and has: the next may start{at_until(b, m)}."


def _limit_full(b: Blocker, m: Moment) -> str:
    slots, held = b.details["slots"], b.details["held"]
    if not slots:
        return f"{capital(what(b))} may run none at all: its limit is 0."
    does, ahead = "does" if held == 1 else "do", b.details.get("ahead")
    text = f"{capital(what(b))} may run {slots:,} at once, and {held:,} {does}: held by {holders(b, m, held)}."
    if not ahead:
        return text
    return f"{text} {number(ahead, 'job', {})} with this key come{'s' if ahead == 1 else ''} before."


def _suspect(b: Blocker, m: Moment) -> str:
    return (
        f"{b.details['crashes']} of its runs took their worker with them, so it runs alone: a worker takes it when "
        f"nothing else runs there, at the latest after half a minute{because(b)}."
    )


def _workers_busy(b: Blocker, m: Moment) -> str:
    running = ", ".join(f"{n} {task}" for task, n in b.details.get("running", {}).items())
    where = workers(b.details["workers"]) if b.details.get("workers") else ""
    doing = f" They run {running}." if running else ""
    return (
        f"All {b.details['slots']:,} slots of the workers that know it are busy"
        + (f" ({where})" if where else "")
        + f".{doing}"
    )


def _behind(b: Blocker, m: Moment) -> str:
    details = b.details
    whose = " of its tenant" if details["other_tenants"] else ""
    comes = "comes" if details["ahead"] == 1 else "come"
    text = f"{number(details['ahead'], 'job', details)}{whose} in {what(b)} {comes} first"
    if len(by_task := details.get("ahead_by_task") or {}) > 1:
        text += f" ({', '.join(f'{n:,} {task}' for task, n in by_task.items())})"
    more = " or more" if details["at_least"] else ""
    text += f"; it is number {details['position_in_lane']:,} of {details['in_lane']:,}{more} in its lane"
    if details["other_tenants"]:
        n = details["other_tenants"]
        text += f", and it takes turns with {n:,} other tenant{'' if n == 1 else 's'}"
    if b.until is None:
        return f"{text}. Nothing ended in the last minutes to tell when its turn comes."
    ran, seconds = details["runs_measured"], details["measured_seconds"]
    return f"{text}. By the last {span(seconds)} ({ran:,} runs) it starts at about {m(b.until)}."


def _starting(b: Blocker, m: Moment) -> str:
    return "Nothing holds it: a worker takes it in a moment."


def _unexplained(b: Blocker, m: Moment) -> str:
    return f"Nothing that can be seen holds it, and it has waited{since(b, m)}. Have the installation checked."


def _running(b: Blocker, m: Moment) -> str:
    d = b.details
    where = f" on {d['host']} pid {d['pid']}" if d.get("host") else ""
    seen = (
        ""
        if d.get("worker_seen_seconds_ago") is None
        else f"; its worker was seen {span(d['worker_seen_seconds_ago'])} ago"
    )
    return f"It runs{where}{since(b, m)}{_progress(d)}{seen}{_lease(d)}."


def _progress(d: Mapping[str, Any]) -> str:
    share = "" if d.get("progress") is None else f"{d['progress']:.0%}"
    text = " ".join(each for each in (share, d.get("progress_text") or "") if each)
    return f", at {text}" if text else ""


def _lease(d: Mapping[str, Any]) -> str:
    left = d.get("leased_for")
    return "" if left is None else f", its lease holds for another {span(left)}"


def _cancel_requested(b: Blocker, m: Moment) -> str:
    where = f" on {b.details['host']} pid {b.details['pid']}" if b.details.get("host") else ""
    return f"It was asked to stop{at(b, m)}{because(b)}, and its handler{where} has not ended yet."


def _lease_lapsed(b: Blocker, m: Moment) -> str:
    d = b.details
    where = f" (pid {d['pid']} on {d['host']})" if d.get("host") else ""
    gone = "is gone" if not d["worker_alive"] else "does not renew its lease"
    text = f"It runs{since(b, m)}, but its worker{where} {gone}."
    if not d["rescuers"]:
        return f"{text} No other worker is there to take it over."
    left = d.get("leased_for") or 0
    then = f" when its lease lapses, at {when(b.until, m)}, if not before" if left > 0 else " within a lease's time"
    return f"{text} Another worker takes it over{then}."


def _previous_run(b: Blocker, m: Moment) -> str:
    then = "is left out" if b.details["overlap"] == "skip" else "follows when it has ended"
    missed = datetime.fromisoformat(b.details["missed_at"])
    return f"Its run{since(b, m)} still goes on: that of {m(missed)} {then} (overlap={b.details['overlap']})."


def _succeeded(b: Blocker, m: Moment) -> str:
    return f"It succeeded{at(b, m)}, in run {b.details['attempts']}."


def _failed(b: Blocker, m: Moment) -> str:
    ended, runs = b.details.get("ended_because"), f"{b.details['attempts']} of {b.details['max_attempts']} runs"
    return f"It failed for good{at(b, m)} after {runs}{f' ({ended})' if ended else ''}{because(b)}."


def _poison(b: Blocker, m: Moment) -> str:
    return f"It failed for good{at(b, m)}: {b.details['ended_because']}."


def _cancelled(b: Blocker, m: Moment) -> str:
    return f"It was cancelled{at(b, m)}{because(b)}."


_WORDS: dict[Reason, Callable[[Blocker, Moment], str]] = {
    Reason.NOWHERE: _nowhere,
    Reason.TWO_PLACES: _two_places,
    Reason.DISABLED: _disabled,
    Reason.ARGUMENTS: _arguments,
    Reason.EXPIRED: _expired,
    Reason.NOT_DUE: _not_due,
    Reason.RETRY: _retry,
    Reason.SNOOZED: _snoozed,
    Reason.RECURS: _recurs,
    Reason.UNIQUE: _unique,
    Reason.PARKED: _parked,
    Reason.PAUSED: _paused,
    Reason.NO_WORKER: _no_worker,
    Reason.NO_WORKER_FOR_QUEUE: _no_worker_for_queue,
    Reason.UNKNOWN_TASK: _unknown_task,
    Reason.BLOCKED: _blocked,
    Reason.BREAKER_OPEN: _breaker_open,
    Reason.BREAKER_PROBING: _breaker_probing,
    Reason.QUOTA_USED_UP: _quota,
    Reason.RATE_USED_UP: _rate,
    Reason.LIMIT_FULL: _limit_full,
    Reason.SUSPECT: _suspect,
    Reason.WORKERS_BUSY: _workers_busy,
    Reason.BEHIND_OTHERS: _behind,
    Reason.STARTING: _starting,
    Reason.UNEXPLAINED: _unexplained,
    Reason.RUNNING: _running,
    Reason.CANCEL_REQUESTED: _cancel_requested,
    Reason.LEASE_LAPSED: _lease_lapsed,
    Reason.PREVIOUS_RUN: _previous_run,
    Reason.SUCCEEDED: _succeeded,
    Reason.FAILED: _failed,
    Reason.POISON: _poison,
    Reason.CANCELLED: _cancelled,
}


# -- about many -------------------------------------------------------------------------------------------------------


def _many_starting(b: Blocker, m: Moment) -> str:
    ran, seconds = b.details.get("runs_measured"), b.details.get("measured_seconds")
    did = f" {ran:,} runs ended in the last {span(seconds)}." if ran and seconds else ""
    return f"Nothing holds them: workers take them in turn.{did}"


_OF_MANY: dict[Reason, Callable[[Blocker, Moment], str]] = {
    Reason.NOT_DUE: lambda b, m: f"They are not due yet, the first at {when(b.until, m)}.",
    Reason.RETRY: lambda b, m: f"They failed and are tried again, the first at {when(b.until, m)}.",
    Reason.RECURS: lambda b, m: f"They recur, the next at {when(b.until, m)}.",
    Reason.ARGUMENTS: lambda b, m: f"Their arguments no longer fit the code of task {b.name!r}{because(b)}.",
    Reason.UNIQUE: lambda b, m: "Each follows another job with the same unique key.",
    Reason.PARKED: lambda b, m: f"They are set aside{because(b)}.",
    Reason.SUSPECT: lambda b, m: "Their runs took workers with them, so each runs alone.",
    Reason.STARTING: _many_starting,
    Reason.LEASE_LAPSED: lambda b, m: (
        "They run by the record, but their leases have lapsed: "
        + ("another worker takes them over." if b.details["rescuers"] else "no worker is there to take them over.")
    ),
}
