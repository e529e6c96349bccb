"""Says from the ledger and the database what was lost, doubled, robbed, and how long rescues took."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from chaos.ledger import Line

UNREACHABLE = (sqlite3.Error, psycopg.Error, OSError)
"""What `connect` and its connections raise while the database cannot be reached."""
NOTED_BEFORE = 1.0
"""A kill is noted before it is done; what began in these seconds after was begun by the same process."""
PLACES = ("waiting", "running", "scheduled", "parked")
"""Where a job is that has not ended."""


class Kill(NamedTuple):
    """A process that was ended: when, on the shared clock and on the wall."""

    pid: int
    at: float
    wall: float


class Disturbed(NamedTuple):
    """A process that could not renew its leases for a time."""

    pid: int
    since: float
    until: float


@dataclass(slots=True)
class Facts:
    """What whoever disturbs knows, and the checker needs."""

    kills: list[Kill] = field(default_factory=list)
    disturbed: list[Disturbed] = field(default_factory=list)
    lease: float = 3.0
    keepers: bool = False
    """Whether who was neither killed nor disturbed must have kept all its runs, also those whose handler was over."""

    def end_of(self, run: Line) -> Kill | None:
        """What ended the process in which a run began, if anything did. A number is given to other processes later."""
        after = (kill for kill in self.kills if kill.pid == run.pid and kill.at >= run.at - NOTED_BEFORE)
        return min(after, key=lambda kill: kill.at, default=None)

    def by_pid(self) -> dict[int, list[Disturbed]]:
        """What each process went through."""
        found: dict[int, list[Disturbed]] = defaultdict(list)
        for each in self.disturbed:
            found[each.pid].append(each)
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found."""

    jobs: int
    runs: int
    cut_short: int
    """Runs that ended by rescue."""
    lost: list[str]
    doubled: list[str]
    robbed: list[str]
    stale: list[str]
    delays: list[float]
    """For each run that a kill cut short, seconds until it was rescued."""


class Ended(NamedTuple):
    """What the database has in the end."""

    states: dict[str, str]
    """Of each job that has ended, how."""
    left: int
    """Jobs that have not ended."""
    runs: list[tuple[str, int, str, int, str]]
    """(job, token, outcome, finished_at, worker) of each run."""


def read(url: str) -> Ended:
    """Read what the database has."""
    prefix = "duly." if url.startswith("postgres") else "duly_"
    places = " + ".join(f"(SELECT count(*) FROM {prefix}{name})" for name in PLACES)
    with closing(connect(url)) as connection:
        states = {str(row[0]): row[1] for row in connection.execute(f"SELECT id, state FROM {prefix}ended")}
        left = int(connection.execute(f"SELECT {places}").fetchone()[0])
        columns = "job_id, token, outcome, finished_at, worker_id"
        rows = connection.execute(f"SELECT {columns} FROM {prefix}runs").fetchall()
        runs = [(str(row[0]), *row[1:4], str(row[4])) for row in rows]
    return Ended(states, left, runs)


def connect(url: str) -> Any:
    """A connection by the usual library."""
    if url.startswith("postgres"):
        return psycopg.connect(url)
    return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)


def judge(lines: Sequence[Line], ended: Ended, facts: Facts) -> Verdict:
    """Compare what was said with what there is."""
    stored = {line.job for line in lines if line.event == "stored"}
    finished = {line.job for line in lines if line.event == "end"}
    succeeded = {job for job, state in ended.states.items() if state == "succeeded"}
    excused = _excused(lines, ended)
    retried = Counter(line.job for line in lines if line.event == "retry")
    accepted = Counter(job for job, _, outcome, _, _ in ended.runs if outcome == "succeeded")
    known = stored | set(ended.states) | {line.job for line in lines}
    return Verdict(
        jobs=len(known),
        runs=sum(line.event == "start" for line in lines),
        cut_short=sum(run[2] == "crashed" for run in ended.runs),
        lost=sorted(job for job in known - excused if job not in succeeded or job not in finished),
        doubled=sorted(job for job, times in accepted.items() if times > 1 + retried[job]),
        robbed=_robbed(lines, facts) or (_taken(lines, ended, facts) if facts.keepers else []),
        stale=_stale(lines, facts),
        delays=_delays(lines, ended, facts),
    )


def _excused(lines: Iterable[Line], ended: Ended) -> set[str]:
    """Jobs that need not have succeeded: cancelled, gone or failed, and somebody had asked for that.

    What was cancelled may be gone too: it is forgotten after a while.
    """
    cancelled = {line.job for line in lines if line.event == "cancel"}
    deleted = {line.job for line in lines if line.event == "delete"}
    kept = set(ended.states) - {job for job in cancelled if ended.states.get(job) == "cancelled"}
    doomed = {line.job for line in lines if line.event == "doomed" and ended.states.get(line.job) == "failed"}
    return doomed | (cancelled | deleted) - kept


def _robbed(lines: Iterable[Line], facts: Facts) -> list[str]:
    """Runs that began while an earlier run of the same job was under way, in a process that nobody disturbed.

    An earlier one that begins beside a later is judged by its fence (`_stale`): it robs nobody.
    """
    disturbed = facts.by_pid()
    under_way: dict[str, dict[int, Line]] = defaultdict(dict)
    found = []
    for line in sorted(lines, key=lambda each: each.at):
        if line.event in ("end", "left"):
            under_way[line.job].pop(line.token, None)
        elif line.event == "start":
            for other in under_way[line.job].values():
                end = facts.end_of(other)
                dead = end is not None and end.at <= line.at
                cut_off = any(
                    each.since + facts.lease / 2 < line.at and each.until > other.at for each in disturbed[other.pid]
                )
                if not dead and not cut_off and line.token > other.token:
                    found.append(f"{line.job}: {other.token} by {other.pid} was under way, {line.token} by {line.pid}")
            under_way[line.job][line.token] = line
    return found


def _taken(lines: Iterable[Line], ended: Ended, facts: Facts) -> list[str]:
    """Runs that ended by rescue though their process lived and nobody disturbed it."""
    disturbed = facts.by_pid()
    return [
        f"{job}: {token} by {line.pid} was rescued at {finished_at / 1e6:.1f} though it lived"
        for job, token, finished_at, line in _rescued(lines, ended)
        if facts.end_of(line) is None and not disturbed[line.pid]
    ]


def _rescued(lines: Iterable[Line], ended: Ended) -> Iterator[tuple[str, int, int, Line]]:
    """Each run that ended by rescue: the job, the token, when, and where it began, or another of the same worker."""
    begun = {(line.job, line.token): line for line in lines if line.event == "start"}
    last: dict[str, Line] = {}
    for job, token, _, _, worker in ended.runs:
        line = begun.get((job, token))
        if line is not None and (worker not in last or line.at > last[worker].at):
            last[worker] = line
    for job, token, outcome, finished_at, worker in ended.runs:
        line = begun.get((job, token), last.get(worker))
        if outcome == "crashed" and line is not None:
            yield job, token, finished_at, line


def _stale(lines: Iterable[Line], facts: Facts) -> list[str]:
    """Jobs whose fence did not grow from one run to the next, but for a process that stood still and began too late."""
    disturbed = facts.by_pid()
    last: dict[str, int] = {}
    found = []
    for line in sorted((each for each in lines if each.event == "start"), key=lambda each: each.at):
        if line.token <= last.get(line.job, 0) and not disturbed[line.pid]:
            found.append(line.job)
        last[line.job] = max(line.token, last.get(line.job, 0))
    return found


def _delays(lines: Iterable[Line], ended: Ended, facts: Facts) -> list[float]:
    """How long after its process was killed each run was rescued; also of runs whose handler never began."""
    ends = ((finished_at, facts.end_of(line)) for _, _, finished_at, line in _rescued(lines, ended))
    return sorted(max(0.0, finished_at / 1e6 - end.wall) for finished_at, end in ends if end is not None)


def percentile(some: Sequence[float], share: float) -> float | None:
    """Of sorted numbers the one that this share does not exceed."""
    return some[min(len(some) - 1, int(len(some) * share))] if some else None
