"""What a tenant may not know is taken out: other tenants' jobs, what operators wrote, machines, others' commands.

Of the facts before they are judged, so that no sentence can tell it; of the answer all but what is named here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from duly.store.ops_why import Facts, GateFacts, HolderFacts
from duly.why.answer import Blocker, Group, Holder, Why

ASK = "ask whoever operates duly"
_OWN = re.compile(r"^duly (jobs|schedules|why) .*[0-9a-f]{8}-[0-9a-f]{4}-")
"""Commands about one's own job: no other job's id is left."""
_DETAILS = frozenset(
    {
        "ahead",
        "at_least",
        "attempt",
        "attempts",
        "burst",
        "crashes",
        "created_at",
        "deadline_at",
        "effective_priority",
        "ended_because",
        "failures",
        "first",
        "held",
        "in_lane",
        "key",
        "last_run_at",
        "leased_for",
        "max_attempts",
        "measured_seconds",
        "missed_at",
        "next_run_at",
        "next_tick_at",
        "other_tenants",
        "overlap",
        "per",
        "places",
        "position_in_lane",
        "priority",
        "progress",
        "progress_text",
        "quota",
        "rate",
        "rescuers",
        "rule",
        "runs_measured",
        "slots",
        "used",
        "worker_alive",
        "worker_seen_seconds_ago",
    }
)


def from_tenant(facts: Facts, tenant: str) -> Facts:
    """The same facts as one tenant may see them."""
    return facts._replace(
        gates=tuple(gate(each, tenant) for each in facts.gates),
        key=None if facts.key is None else gate(facts.key, tenant),
    )


def gate(facts: GateFacts, tenant: str) -> GateFacts:
    """A gate: of one's own all, of a shared one that it is shut, full or used up, and no more."""
    held = facts._replace(holders=tuple(_holder(each, tenant) for each in facts.holders))
    return held if _is_own(facts, tenant) else held._replace(paused_by=None, paused_reason=None, blocked_reason=None)


def _is_own(facts: GateFacts, tenant: str) -> bool:
    if facts.scope == "key":
        return facts.name.partition("/")[0].partition("@")[2] == tenant.replace("/", "|")
    return facts.scope in ("tenant", "minute", "day") and facts.name == tenant


def _holder(facts: HolderFacts, tenant: str) -> HolderFacts:
    return facts if facts.tenant == tenant else HolderFacts(None, facts.place, None, None, None, facts.since, None)


def answer(why: Why) -> Why:
    """An answer without machines, and without commands that are not a tenant's to give."""
    return replace(
        why,
        answer=_blocker(why.answer),
        blockers=tuple(_blocker(each) for each in why.blockers),
        details={name: value for name, value in why.details.items() if name in _DETAILS},
    )


def group(found: Group) -> Group:
    """The same for a group of jobs."""
    return replace(found, blocker=_blocker(found.blocker))


def _blocker(blocker: Blocker) -> Blocker:
    following = blocker.next
    return replace(
        blocker,
        holders=tuple(_seen(each) for each in blocker.holders),
        next=following if following is None or _OWN.match(following) else ASK,
        details={name: value for name, value in blocker.details.items() if name in _DETAILS},
    )


def _seen(holder: Holder) -> Holder:
    if holder.job_id is None:
        return Holder(job_id=None, place=holder.place)
    return replace(holder, worker_id=None, host=None, pid=None)
