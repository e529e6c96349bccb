"""Pages of lists of jobs: by id or by when they ended, newest first, narrowed down, at a bounded cost if asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final, NamedTuple

from duly.domain.ids import lowest_id_at
from duly.domain.records import Cursor, Filter, JobRecord, Page
from duly.domain.states import TERMINAL, State
from duly.store.call import Call, Dialect, Op, Value
from duly.store.ops_jobs import find_of, job_record

FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
END_OF_TIME = 2**62
FEW: Final = 2_000
"""So many jobs a search passes first."""
ALONE: Final = 5
"""So many times more it passes where it asks no other table, which is so much cheaper."""
_LISTS = {None: "jobs", State.SCHEDULED: "scheduled", State.RUNNING: "running", State.DISABLED: "disabled"}


def find(dialect: Dialect, wanted: Filter) -> Op[list[JobRecord]]:
    """List jobs, newest first (finished ones by when they finished; a tenant's, by when they were enqueued)."""
    if wanted.tenant and wanted.since_us is None and wanted.until_us is None and wanted.look is None:
        return (yield from find_of(dialect, wanted))
    return (yield from page(dialect, wanted)).jobs


def page(dialect: Dialect, wanted: Filter) -> Op[Page]:
    """One page of a list, and where the next begins."""
    stretch = yield from _stretch(wanted)
    if stretch is None:
        return Page(jobs=[], following=None, looked=None)
    if wanted.text is not None and wanted.look is not None and _narrowed(replace(wanted, text=None)):
        return (yield from _search(dialect, wanted, stretch))
    found: list[Cursor] = []
    stop: Cursor | None = None
    for name in _names(wanted.state):
        last = yield from _last_looked_at(name, wanted, stretch)
        if last is not None:
            stop = last if stop is None else max(stop, last, key=_by_id)
        from_there: dict[str, Value] = {} if last is None else {"from_id": last.id, "from_at": last.at}
        found += map(_cursor, (yield Call(f"list_{name}", stretch | from_there)))
    if wanted.state is State.QUEUED:  # each place was read from its newest on, to be merged here
        newest = sorted((each for each in found if stop is None or each.id >= stop.id), reverse=True, key=_by_id)
        found = newest[wanted.offset : wanted.offset + wanted.limit]
    records = yield from _records(dialect, wanted, [each.id for each in found])
    if len(found) == wanted.limit:
        return Page(jobs=records, following=found[-1], looked=None)
    return Page(jobs=records, following=stop, looked=None if stop is None else wanted.look, gave_up=stop is not None)


# -- a text among the jobs that fit other filters ---------------------------------------------------------------------


class _Sweep(NamedTuple):
    """What a search found: the jobs, at how many it looked, and where it gave up."""

    found: list[Cursor]
    looked: int
    stop: Cursor | None


def _search(dialect: Dialect, wanted: Filter, stretch: dict[str, Value]) -> Op[Page]:
    """Look for a text in the newest jobs that fit the other filters. First among few: often those fill the page."""
    walk = wanted.walk if wanted.state is not None else wanted.walk * ALONE
    sweep = yield from _sweep(wanted, stretch, min(FEW, walk))
    if len(sweep.found) < wanted.limit and sweep.stop is not None and walk > FEW:
        sweep = yield from _sweep(wanted, stretch, walk)
    records = yield from _records(dialect, wanted, [each.id for each in sweep.found])
    if len(sweep.found) == wanted.limit:
        return Page(jobs=records, following=sweep.found[-1], looked=None)
    return Page(jobs=records, following=sweep.stop, looked=sweep.looked, gave_up=sweep.stop is not None)


def _sweep(wanted: Filter, stretch: dict[str, Value], walk: int) -> Op[_Sweep]:
    assert wanted.look is not None
    found: list[Cursor] = []
    stop: Cursor | None = None
    looked = 0
    of_tenant = wanted.state is None and wanted.tenant is not None
    for name in ("jobs_of_tenant",) if of_tenant else _names(wanted.state):
        rows = yield Call(f"search_{name}", stretch | {"walk": walk, "look": wanted.look})
        found += [_cursor(row[:-1]) for row in rows if row[-1] is None]
        last = next((row for row in rows if row[-1] is not None), None)  # of those that fit, and how many they were
        fitted = 0 if last is None else int(str(last[-1]))
        looked += fitted
        if last is not None and fitted == wanted.look:
            end: Cursor | None = _cursor(last[:-1])
        else:
            passed = yield Call(f"look_{name}", stretch | {"look": walk})
            end = _cursor(passed[0]) if passed else None
        if end is not None:
            stop = end if stop is None else max(stop, end, key=_by_id)
    found.sort(key=lambda each: (each.at or 0, each.id), reverse=True)
    if wanted.state is State.QUEUED:  # each place was read from its newest on, to be merged here
        newest = [each for each in found if stop is None or each.id >= stop.id]
        found = newest[wanted.offset : wanted.offset + wanted.limit]
    return _Sweep(found, looked, stop)


def _last_looked_at(name: str, wanted: Filter, stretch: dict[str, Value]) -> Op[Cursor | None]:
    """The job after which a page gives up, if there are so many."""
    if wanted.look is None or not _narrowed(wanted):
        return None
    rows = yield Call(f"look_{name}", stretch | {"look": wanted.look})
    return _cursor(rows[0]) if rows else None


def count_ended(wanted: Filter) -> Op[tuple[int, bool]]:
    """How many of the jobs that ended so are wanted, and whether that is all: at most `look` are looked at."""
    assert wanted.look is not None
    stretch = yield from _stretch(replace(wanted, limit=1, offset=0))
    assert stretch is not None
    more = yield Call("look_ended", stretch | {"look": wanted.look + 1})
    rows = yield Call("count_wanted", stretch | {"look": wanted.look})
    return int(str(rows[0][0])), not more


def _stretch(wanted: Filter) -> Op[dict[str, Value] | None]:
    """The parameters of a list: from where to where, and what is wanted. None: there is nothing."""
    ended = wanted.state in TERMINAL
    before_at, before_id = wanted.before_at, wanted.before_id
    if ended and before_id is not None and before_at is None:
        rows = yield Call("when_ended", {"id": before_id})
        if not rows:
            return None
        before_at = int(str(rows[0][0]))
    from_at, from_id = 0, FIRST_ID
    if ended:
        from_at = wanted.since_us or 0
        if wanted.until_us is not None and (before_at is None or wanted.until_us <= before_at):
            before_at, before_id = wanted.until_us, FIRST_ID  # what ended at that moment is not before it
    else:
        from_id = FIRST_ID if wanted.since_us is None else lowest_id_at(wanted.since_us)
        if wanted.until_us is not None:
            before_id = min(before_id or LAST_ID, lowest_id_at(wanted.until_us))
    merged = wanted.state is State.QUEUED
    return {
        "state": wanted.state,
        "everything": not _narrowed(wanted),
        "task": wanted.task,
        "queue": wanted.queue,
        "tenant": wanted.tenant,
        "tag": None if wanted.tag is None else json.dumps(wanted.tag, ensure_ascii=False),
        "text": wanted.text,
        "before_at": END_OF_TIME if before_at is None else before_at,
        "before_id": before_id or LAST_ID,
        "from_at": from_at,
        "from_id": from_id,
        "limit": wanted.limit + (wanted.offset if merged else 0),
        "offset": 0 if merged else wanted.offset,
    }


def _names(state: State | None) -> tuple[str, ...]:
    """The statements that list a state. What is parked is queued to people, and stands in a place of its own."""
    return ("waiting", "parked") if state is State.QUEUED else (_LISTS.get(state, "ended"),)


def _narrowed(wanted: Filter) -> bool:
    """Whether not every job that stands there is wanted."""
    return any(each is not None for each in (wanted.task, wanted.queue, wanted.tenant, wanted.tag, wanted.text))


def _cursor(row: tuple[object, ...]) -> Cursor:
    return Cursor(int(str(row[1])) if len(row) > 1 else None, str(row[0]))


def _by_id(cursor: Cursor) -> str:
    return cursor.id


def jobs_of(dialect: Dialect, ids: list[str]) -> Op[list[JobRecord]]:
    """Some jobs with the places they stand in; those that are gone are left out."""
    if not ids:
        return []
    rows = yield Call("jobs_of", {"ids": ids if dialect is Dialect.POSTGRES else json.dumps(ids)})
    return [job_record(row) for row in rows]


def _records(dialect: Dialect, wanted: Filter, ids: list[str]) -> Op[list[JobRecord]]:
    found = {record.id: record for record in (yield from jobs_of(dialect, ids))}  # one may have moved on since
    return [found[each] for each in ids if each in found and wanted.state in (None, found[each].state)]
