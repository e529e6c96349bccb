"""`duly runs`: the newest executions of jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from duly.cli.apps import open_database
from duly.cli.base import Command
from duly.cli.options import database_options, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.text import clean, tail
from duly.domain.durations import human


@click.command(cls=Command)
@database_options
@click.option("--task", metavar="NAME", help="Only runs of this task.")
@click.option("--tenant", metavar="NAME", help="Only runs for this tenant.")
@click.option("--limit", type=click.IntRange(1, 10_000), metavar="N", default=20, show_default=True, help="How many.")
@utc_option
def runs(
    url: str | None, schema: str | None, app: str | None, task: str | None, tenant: str | None, limit: int
) -> None:
    """Show the newest runs: one per execution, failed ones included."""
    opened = open_database(url, schema, app)
    found = sorted(opened.runs(task=task, tenant=tenant, limit=limit), key=lambda run: run.started_at, reverse=True)
    records = {job_id: opened.store.get(job_id) for job_id in {run.job_id for run in found}}
    names = {job_id: "?" if record is None else record.task for job_id, record in records.items()}
    now = datetime.now(UTC)
    rows = [
        (
            tail(run.job_id),
            clean(names[run.job_id]),
            run.outcome,
            str(run.attempt),
            moment(run.started_at, now),
            human(run.duration),
            clean(f"{run.error_kind}: {run.error}" if run.error_kind else "", 200),
        )
        for run in found
    ]
    answer(
        [{**run.to_dict(), "task": names[run.job_id]} for run in found],
        table(["JOB", "TASK", "OUTCOME", "ATTEMPT", "STARTED", "TOOK", "ERROR"], rows, right=[3])
        if rows
        else "no runs yet",
    )
