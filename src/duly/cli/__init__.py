"""The command line: a thin edge over `Duly` and its operator verbs. `duly.cli:main` is the program.

Every command has `--json`; exit codes are in `duly.cli.base`.
"""

from __future__ import annotations

import click

from duly.__about__ import __version__
from duly.cli.base import Main
from duly.cli.dev import dev
from duly.cli.enqueue import enqueue
from duly.cli.jobs import jobs
from duly.cli.migrate import migrate
from duly.cli.prune import prune
from duly.cli.runs import runs
from duly.cli.stats import stats
from duly.cli.tick import tick
from duly.cli.worker import worker
from duly.cli.workers import workers

_HELP = """A job queue in the database you already have.

\b
    duly dev app.py                   worker that reloads, for development
    duly worker app:jobs              worker for production
    duly enqueue app.py add x=1 y=2   store a job
    duly stats, duly jobs list        look

Exit codes: 0 done, 1 not possible (no such job, ...), 2 wrong usage or configuration, 3 database unavailable,
130 interrupted.
"""

main = Main("duly", help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
click.version_option(__version__, prog_name="duly")(main)
for _command in (dev, worker, enqueue, jobs, runs, workers, stats, tick, migrate, prune):
    main.add_command(_command)

__all__ = ["main"]
