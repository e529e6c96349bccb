"""A task that completes its job in a child process, which finds its database by the environment."""

from __future__ import annotations

import os
import signal

from duly import Duly, current_job

jobs = Duly(os.environ.get("COMPLETING_URL", "sqlite:///never-opened.db"))


@jobs.task(isolation="process", name="tests.worker.completing_app.pay")
def pay(dies: bool) -> None:
    """Write one effect, and complete the job with it."""
    from tests.worker.test_completing import own_connection

    with own_connection(os.environ["COMPLETING_URL"]) as connection, current_job().completing(connection):
        connection.execute("INSERT INTO effects VALUES ('done')")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
