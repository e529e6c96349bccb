"""What the tests of the store have other processes do: `python program.py <what> <how many> <url> [more]`.

It forks `how many` children that do `what` at once, each writing what it has to say as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import Lane, NewJob, Settled
from duly.store.store import Store

LEASE_US = 60_000_000


def migrate(url: str, *_: str) -> Any:
    """Make the tables."""
    store = Store.open(url)
    try:
        return store.migrate()
    finally:
        store.close()


def hammer(url: str, jobs: str) -> Any:
    """Enqueue `jobs` jobs one by one, and claim and finish as many, whoever made them."""
    store, me, done = Store.open(url), str(uuid4()), 0
    for _ in range(int(jobs)):
        store.enqueue(NewJob(id=uuid7(), task="t", args="{}"))
        claimed = store.claim("default", [Lane("", "t")], 2, worker_id=me, lease_us=LEASE_US)
        done += len(store.settle([Settled(job.id, job.token, "succeeded", "succeeded", ran_us=1) for job in claimed]))
        store.counts()
    store.close()
    return done


def write_on(url: str, rows: str) -> Any:
    """Write as much as a busy queue does in a long time, in few commits."""
    store = Store.open(url)
    for _ in range(10):
        batch = [(job_id, f'{{"x": "{"y" * 300}"}}', None) for job_id in uuid7_many(int(rows) // 10)]
        store.enqueue_many(NewJob(id=uuid7(), task="t", args="{}"), batch)
    store.close()
    return "written"


DUTIES: dict[str, Callable[..., Any]] = {each.__name__: each for each in (migrate, hammer, write_on)}


def main(what: str, how_many: str, *arguments: str) -> None:
    start_reading, start_writing = os.pipe()
    children = []
    for _ in range(int(how_many)):
        child = os.fork()
        if child == 0:
            os.close(start_writing)
            os.read(start_reading, 1)  # returns when the parent closes its end: all begin at once
            report(DUTIES[what], arguments)
            os._exit(0)
        children.append(child)
    os.close(start_reading)
    os.close(start_writing)
    for child in children:
        os.waitpid(child, 0)


def report(duty: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    try:
        answer = {"answer": duty(*arguments)}
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    os.write(1, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
