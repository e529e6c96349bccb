"""The same done to many jobs: those that are named, or those that a filter finds; counted first if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from duly.admin import Bulk
from duly.domain.ids import is_job_id
from duly.domain.rank import check_priority
from duly.domain.records import JobRecord
from duly.domain.states import State
from duly.web.desk import Desk, verb
from duly.web.errors import invalid
from duly.web.principal import Scope
from duly.web.service.filters import MOST_PAGE, Wanted
from duly.web.service.jobs import shows_text

MOST: Final = 10_000
"""So many at most are found and acted on by one request; the answer says if there are more."""
MOST_LOOKS: Final = 40
"""So often 50,000 jobs are looked at to find them."""
UNSTARTED: Final = (State.SCHEDULED, State.QUEUED)


@dataclass(frozen=True, slots=True)
class Matching:
    """The jobs that a filter found, and whether there may be more."""

    records: list[JobRecord]
    more: bool


def matching(desk: Desk, wanted: Wanted) -> Matching:
    """Find the jobs that a filter is about, newest first."""
    query = wanted.filter(desk, limit=MOST_PAGE)
    found: list[JobRecord] = []
    looks = 0
    while query is not None:
        page = desk.jobs.store.page(query)
        found += [each for each in page.jobs if shows_text(desk, each, query.text)]
        looks += page.gave_up
        if page.following is None:
            return Matching(found, False)
        if len(found) >= MOST or looks >= MOST_LOOKS:
            return Matching(found[:MOST], True)
        query = replace(query, before_at=page.following.at, before_id=page.following.id)
    return Matching([], False)


def _act(
    desk: Desk,
    job_ids: list[str] | None,
    wanted: Wanted | None,
    dry_run: bool,
    states: tuple[State, ...],
    do: Callable[[Iterable[str]], Bulk],
) -> dict[str, Any]:
    """Do it, to the jobs named or to those that a filter finds; by a filter without a state, to those in `states`."""
    if (job_ids is None) == (wanted is None):
        raise invalid("give job_ids or filter")
    ids, refused, more = _named(desk, job_ids or []) if wanted is None else _found(desk, wanted, states)
    if dry_run:
        return {"dry_run": True, "count": len(ids), "ids": ids[:MOST_PAGE], "refused": refused, "more": more}
    bulk = do(ids)
    refused += [{"id": job_id, "why": why} for job_id, why in bulk.refused]
    return {"dry_run": False, "count": len(bulk.done), "ids": bulk.done, "refused": refused, "more": more}


Chosen = tuple[list[str], list[dict[str, str]], bool]


def _named(desk: Desk, job_ids: list[str]) -> Chosen:
    """Of the jobs named, those that there are for this principal; the others are refused as gone."""
    unique = list(dict.fromkeys(job_ids))
    known = desk.jobs.store.jobs_of([each for each in unique if is_job_id(each)])
    seen = [each for each in unique if each in known and desk.sees(known[each].tenant)]
    gone = set(unique) - set(seen)
    return seen, [{"id": each, "why": "it is gone"} for each in unique if each in gone], False


def _found(desk: Desk, wanted: Wanted, states: tuple[State, ...]) -> Chosen:
    if wanted.state:
        found = matching(desk, wanted)
        return [each.id for each in found.records], [], found.more
    if not states:
        raise invalid("the filter must say which state", 'for instance {"state": "failed"}')
    if not wanted.anything:
        raise invalid("the filter is empty", 'say which jobs, for instance {"state": "failed"} or {"task": "send"}')
    ids: list[str] = []
    more = False
    for state in states:
        part = matching(desk, replace(wanted, state=str(state)))
        ids += [each.id for each in part.records]
        more = more or part.more
    return ids[:MOST], [], more or len(ids) > MOST


@verb(Scope.OPERATE)
def retry(
    desk: Desk, *, job_ids: list[str] | None = None, wanted: Wanted | None = None, dry_run: bool = False
) -> dict[str, Any]:
    """Run many jobs again now; by a filter without a state, those that failed."""
    return _act(desk, job_ids, wanted, dry_run, (State.FAILED,), desk.jobs.retry_many)


@verb(Scope.OPERATE)
def cancel(
    desk: Desk,
    *,
    job_ids: list[str] | None = None,
    wanted: Wanted | None = None,
    dry_run: bool = False,
    reason: str = "cancelled",
) -> dict[str, Any]:
    """Cancel many jobs; by a filter without a state, all that have not ended."""
    states = (*UNSTARTED, State.RUNNING)
    return _act(desk, job_ids, wanted, dry_run, states, lambda ids: desk.jobs.cancel_many(ids, reason or "cancelled"))


@verb(Scope.OPERATE)
def delete(
    desk: Desk, *, job_ids: list[str] | None = None, wanted: Wanted | None = None, dry_run: bool = False
) -> dict[str, Any]:
    """Forget many jobs; a filter must say which state."""
    return _act(desk, job_ids, wanted, dry_run, (), desk.jobs.delete_many)


@verb(Scope.OPERATE)
def set_status(
    desk: Desk,
    *,
    status: str,
    job_ids: list[str] | None = None,
    wanted: Wanted | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Set the state of many jobs by hand; a filter must say which state they are in."""
    state = State.parse(status)
    return _act(desk, job_ids, wanted, dry_run, (), lambda ids: desk.jobs.set_state_many(ids, state))


@verb(Scope.OPERATE)
def set_priority(
    desk: Desk,
    *,
    priority: int,
    job_ids: list[str] | None = None,
    wanted: Wanted | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Set the priority of many jobs; by a filter without a state, of all that have not started."""
    check_priority(priority)
    return _act(desk, job_ids, wanted, dry_run, UNSTARTED, lambda ids: desk.jobs.set_priority_many(ids, priority))
