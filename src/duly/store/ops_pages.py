"""What the pages of the dashboard read, in one go: how many jobs stand where, what runs, what ran in the last hour."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from duly.domain.alerts import Alert
from duly.domain.records import MINUTE_US, Pause, WorkerRecord
from duly.store import ops_alerts, ops_gates, ops_workers
from duly.store.call import Call, Dialect, Op, Rows, Value

MOST_ENDED = 10_001
"""Jobs that ended are counted up to here: there may be millions."""
MOST_RUNNING = 500
UNSETTLED = 2
"""Minutes in which something may still be counted, after they are over."""
ENDED = ("succeeded", "failed", "cancelled")
Grouped = list[tuple[str, str, str, int, int]]


class Minute(NamedTuple):
    """What ran in one minute, of one task in one queue, or of all. `waits`: how many had waited up to each step."""

    at: int
    queue: str
    task: str
    runs: int
    succeeded: int
    failed: int
    retried: int
    crashed: int
    waits: tuple[int, ...]


class Busy(NamedTuple):
    """A job that runs."""

    id: str
    queue: str
    tenant: str
    task: str
    worker_id: str
    claimed_at: int
    attempt: int
    progress: float | None
    progress_text: str | None
    cancel_at: int | None


class Watched(NamedTuple):
    """How a job stands that somebody looks at."""

    id: str
    state: str
    run_at: int | None
    token: int
    attempt: int
    progress: float | None
    progress_text: str | None
    cancel_at: int | None
    claimed_at: int | None


class Troubled(NamedTuple):
    """A recurring job that fails again and again."""

    id: str
    tenant: str
    task: str
    key: str
    name: str | None
    enabled: bool
    failures: int
    last_error: str | None
    disabled_reason: str | None


class Past(NamedTuple):
    """One run in the strip of a recurring job."""

    token: int
    outcome: str
    started_at: int
    finished_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How everything stands at one moment, for all tenants or for one."""

    now: int
    tenant: str | None
    waiting: Grouped
    scheduled: Grouped
    running: Grouped
    parked: dict[str, int]
    ended: dict[str, int]
    """Up to MOST_ENDED each; empty for one tenant, where it would take too long."""
    minutes: list[Minute]
    """The last ones, by queue and task."""
    troubled: list[Troubled]
    busy: list[Busy]
    workers: list[WorkerRecord]
    held: dict[str, int]
    """How many jobs each worker runs."""
    paused: list[Pause]
    alerts: list[Alert]
    """Those that are active; none for one tenant: they are about all."""
    watched: dict[str, Watched] = field(default_factory=dict)


def snapshot(
    dialect: Dialect, *, tenant: str | None, minutes: int, known: Sequence[Minute] = (), watch: Sequence[str] = ()
) -> Op[Snapshot]:
    """Read how everything stands. `minutes`: so many are looked back at; `watch`: the jobs to tell more about.

    `known` are minutes that were read before: but for the last ones, in which something may still be counted, they are
    not read again.
    """
    clock = yield Call("clock", {"queue": "", "horizon": 0})
    now = int(str(clock[0][0]))
    one: dict[str, Value] = {"tenant": tenant}
    return Snapshot(
        now=now,
        tenant=tenant,
        waiting=_grouped((yield Call("count_waiting")), tenant),
        scheduled=_grouped((yield Call("count_scheduled")), tenant),
        running=_grouped((yield Call("count_running")), tenant),
        parked={str(reason): int(str(n)) for reason, n in (yield Call("page_parked", one))},
        ended={} if tenant is not None else (yield from _ended()),
        minutes=(yield from _minutes(now, minutes, known, tenant)),
        troubled=[Troubled._make(row) for row in (yield Call("page_troubled", one | {"failures": 3, "n": 5}))],
        busy=[Busy._make(row) for row in (yield Call("page_running", one | {"n": MOST_RUNNING}))],
        workers=(yield from ops_workers.everyone()),
        held={str(worker): int(str(n)) for worker, n in (yield Call("page_held"))},
        paused=(yield from ops_gates.paused()),
        alerts=[] if tenant is not None else (yield from ops_alerts.active()),
        watched=(yield from _watched(dialect, watch, tenant)),
    )


class InHand(NamedTuple):
    """What workers run at one moment."""

    held: dict[str, int]
    """How many jobs each worker runs."""
    jobs: list[Busy]
    """Which, the longest first; so many of them as were asked for."""

    def of(self, worker_id: str) -> list[Busy]:
        """The jobs that one worker runs."""
        return [job for job in self.jobs if job.worker_id == worker_id]


def in_hand(most: int) -> Op[InHand]:
    """What workers run now."""
    held = {str(worker): int(str(n)) for worker, n in (yield Call("page_held"))}
    return InHand(held, [Busy._make(row) for row in (yield Call("page_running", {"tenant": None, "n": most}))])


def strips(dialect: Dialect, ids: Sequence[str], n: int) -> Op[dict[str, list[Past]]]:
    """The last runs of several jobs, oldest first."""
    found: dict[str, list[Past]] = {}
    if ids:
        for row in (yield Call("page_strips", {"ids": _many(dialect, ids), "n": n})):
            found.setdefault(str(row[0]), []).append(Past._make(row[1:]))
    return {job_id: sorted(runs) for job_id, runs in found.items()}


def _grouped(rows: Rows, tenant: str | None) -> Grouped:
    return [tuple(row) for row in rows if tenant is None or row[1] == tenant]  # type: ignore[misc]


def _minutes(now: int, minutes: int, known: Sequence[Minute], tenant: str | None) -> Op[list[Minute]]:
    first = now // MINUTE_US * MINUTE_US - minutes * MINUTE_US
    unsure = max((minute.at for minute in known), default=0) - UNSETTLED * MINUTE_US
    rows = yield Call("page_minutes", {"from_at": max(first, unsure), "tenant": tenant})
    read = [Minute._make((*row[:8], tuple(row[8:]))) for row in rows]
    return [minute for minute in known if first <= minute.at < unsure] + read


def _ended() -> Op[dict[str, int]]:
    counts = {}
    for state in ENDED:
        rows = yield Call("page_ended", {"state": state, "most": MOST_ENDED})
        counts[state] = int(str(rows[0][0]))
    return counts


def _watched(dialect: Dialect, ids: Sequence[str], tenant: str | None) -> Op[dict[str, Watched]]:
    if not ids:
        return {}
    rows = yield Call("page_watched", {"ids": _many(dialect, ids), "tenant": tenant})
    return {str(row[0]): Watched._make(row) for row in rows}


def _many(dialect: Dialect, ids: Sequence[str]) -> Value:
    return list(ids) if dialect is Dialect.POSTGRES else json.dumps(list(ids))
