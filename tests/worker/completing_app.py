"""Tasks that complete their jobs in processes that die: a child of a worker, or a worker (`python -m` this module).

They find their database by the environment; `DIE_AT` says where the process ends.
"""

from __future__ import annotations

import os
import signal
import sys

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


@jobs.task(name="tests.worker.completing_app.pay_at")
def pay_at() -> None:
    """Write one effect, complete the job with it, and die at the point that the environment names."""
    from tests.worker.test_completing import own_connection

    with own_connection(os.environ["COMPLETING_URL"]) as connection:
        with current_job().completing(connection):
            connection.execute("INSERT INTO effects VALUES ('done')")
            _die("in the block")
        _die("before the commit")
        connection.commit()
        _die("after the commit")


def _die(point: str) -> None:
    if os.environ.get("DIE_AT") == point:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with jobs.worker():
        sys.stdin.read()
