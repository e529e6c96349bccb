"""The command line: a thin edge over `Duly` and its operator verbs. `duly.cli:main` is the program.

Every command has `--json`; exit codes are in `duly.cli.base`.
"""

from __future__ import annotations

import click

from duly.__about__ import __version__
from duly.cli import (
    alerts,
    audit,
    bench,
    dev,
    doctor,
    enqueue,
    job_changes,
    jobs,
    limits,
    migrate,
    pause,
    prune,
    queue_admin,
    roles,
    runs,
    schedules,
    stats,
    tenants,
    tick,
    tokens,
    top,
    usage,
    web,
    why,
    worker,
    workers,
)
from duly.cli.base import Main

_HELP = """A job queue in the database you already have.

\b
    duly dev app.py                   worker that reloads, for development
    duly worker app:jobs              worker for production
    duly web app.py                   the dashboard and the HTTP API
    duly enqueue app.py add x=1 y=2   store a job
    duly stats, duly jobs list        look
    duly top, duly alerts             watch
    duly schedules list               what recurs
    duly pause --queue mail           nothing of it starts, until duly resume
    duly limits list, duly quota acme how much may run, start and wait
    duly why 4b6c8d0e12, duly why     why a job does not run; what holds all that waits
    duly doctor                       is all well?
    duly bench                        how fast it is on this database

Exit codes: 0 done, 1 not possible (no such job, ...), 2 wrong usage or configuration, 3 database unavailable,
130 interrupted.
"""

for _change in (
    job_changes.priority,
    job_changes.boost,
    job_changes.reschedule,
    job_changes.state,
    job_changes.copy,
):
    jobs.jobs.add_command(_change)
main = Main("duly", help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
click.version_option(__version__, prog_name="duly")(main)
for _command in (
    dev.dev,
    worker.worker,
    web.web,
    enqueue.enqueue,
    jobs.jobs,
    runs.runs,
    schedules.schedules,
    pause.pause,
    pause.resume,
    pause.paused,
    limits.limits,
    limits.quota,
    tenants.tenants,
    queue_admin.queues,
    workers.workers,
    stats.stats,
    why.why,
    top.top,
    alerts.alerts,
    doctor.doctor,
    bench.bench,
    usage.usage,
    audit.audit,
    tick.tick,
    migrate.migrate,
    roles.roles,
    prune.prune,
    tokens.tokens,
):
    main.add_command(_command)

__all__ = ["main"]
