"""Who is first, row by row: duly against the best peer on the same kind of database, ahead or behind."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import contenders
from results import Outcome

EVERY = {one.name: one for one in vars(contenders).values() if isinstance(one, contenders.Contender)}
OURS = (contenders.DULY_PG, contenders.DULY_SQLITE)
ON = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


@dataclass(frozen=True, slots=True)
class Row:
    """A figure that wants the first place."""

    workload: str
    metric: str
    text: str
    decimals: int = 0
    more_is_better: bool = False


ROWS = (
    Row("enqueue-one-peers", "rate", "single enqueues/s", more_is_better=True),
    Row("enqueue-many", "rate", "bulk enqueue, rows/s", more_is_better=True),
    Row("drain-postgres", "rate", "drain, jobs/s", more_is_better=True),
    Row("drain-sqlite", "rate", "drain, jobs/s", more_is_better=True),
    Row("drain-2-processes", "rate", "drain by two processes, jobs/s", more_is_better=True),
    Row("mixed", "rate", "enqueue and run together, jobs/s", more_is_better=True),
    Row("drain-postgres", "wal_bytes", "drain, WAL bytes/job"),
    Row("latency", "p50", "pick-up p50, ms", 2),
    Row("latency", "p99", "pick-up p99, ms", 2),
    Row("idle", "queries", "idle queries/s", 2),
    Row("idle", "memory", "idle memory, MB", 1),
)


def standing(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """A table: for each row what we have, who is the best of the others there, and how far we are from it."""
    by_name = {outcome.name: outcome for outcome in outcomes}
    rows = [["", "on", "duly", "best peer there", "", "duly is"]]
    for row in ROWS:
        outcome = by_name.get(row.workload)
        if outcome is not None:
            rows += _compared(row, outcome)
    return rows


def _compared(row: Row, outcome: Outcome) -> Iterator[list[str]]:
    for ours in OURS:
        us = outcome.spread(ours.name, row.metric)
        peers = {
            name: found.median
            for name in outcome.contenders
            if (peer := EVERY.get(name)) is not None and peer.is_peer and peer.database == ours.database
            and (found := outcome.spread(name, row.metric)) is not None
        }  # fmt: skip
        if us is None or not peers:
            continue
        best = (max if row.more_is_better else min)(peers, key=lambda name: peers[name])
        ratio = statistics.median(
            samples[ours.name][row.metric] / samples[best][row.metric]
            for samples in outcome.rounds
            if row.metric in samples.get(ours.name, {}) and samples.get(best, {}).get(row.metric)
        )
        ahead = ratio >= 1 if row.more_is_better else ratio <= 1
        place = f"first ({ratio:.2f} ×)" if ahead else f"**behind** ({ratio:.2f} ×)"
        mine, theirs = (f"{value:,.{row.decimals}f}" for value in (us.median, peers[best]))
        yield [row.text, ON[ours.database], mine, best, theirs, place]
