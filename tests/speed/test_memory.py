"""What an idle worker carries: on SQLite nothing that is only there for archives, mail or other file systems."""

from __future__ import annotations

import json
import subprocess
import sys

IDLE = """
import json, sys
before = set(sys.modules)  # what the interpreter of this machine loads by itself
from duly import Duly

jobs = Duly(sys.argv[1])

@jobs.task
async def on_the_loop() -> None: ...

@jobs.task
def in_a_thread() -> None: ...

with jobs.worker():
    on_the_loop.enqueue().wait(timeout=30)
    in_a_thread.enqueue().wait(timeout=30)
    print(json.dumps(sorted(set(sys.modules) - before)))
"""
NEEDLESS = {
    *("zipfile", "tarfile", "tempfile", "shutil", "bz2", "lzma", "importlib.resources", "importlib.metadata"),
    *("email", "http", "xml", "csv", "unittest", "multiprocessing", "click", "psycopg", "jinja2"),
}
"""Each of them stays in the memory of every worker, and brings others along: half a megabyte to one and a half."""
MODULES = 286
"""A tenth more than were counted on Python 3.11: 260."""


def test_an_idle_worker_on_sqlite_carries_no_more_than_it_needs(sqlite_url: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", IDLE, sqlite_url], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 0, told.stderr
    loaded = set(json.loads(told.stdout))
    assert sorted(loaded & NEEDLESS) == []
    assert len(loaded) <= MODULES
