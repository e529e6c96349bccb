"""What runs, watched by strace, until the power is cut: workers, and somebody who enqueues and looks what is done.

python -m chaos.powered URL LEDGER '{"jobs": N, "options": {...}}'
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from chaos.arena import WorkerProcess
from chaos.host import application
from chaos.ledger import Ledger
from duly.store import sqlite

WORKERS = 2
AHEAD = 60
"""How many jobs wait at most."""


def main() -> None:
    """Write to the ledger what is promised: "stored" when an enqueue has returned, "done" when a job was seen done."""
    url, path, text = sys.argv[1:4]
    given: dict[str, Any] = json.loads(text)
    options, chance = given["options"], random.Random(given["seed"])
    sqlite.CHECKPOINT_BYTES = options["checkpoint_bytes"]
    ledger = Ledger(Path(path))
    jobs = application(url, ledger, **options["settings"])
    jobs.migrate()
    workers = [
        WorkerProcess(url, Path(path), options, command=[], env={}, program="chaos.host") for _ in range(WORKERS)
    ]
    for worker in workers:
        worker.ready()
    looking = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
    stored, done = 0, set[str]()
    while len(done) < given["jobs"]:
        if stored - len(done) < AHEAD and stored < given["jobs"]:
            n = chance.choice((1, 1, 2, 20))
            made = [jobs["work"].enqueue()] if n == 1 else jobs["awork"].enqueue_many([{}] * n)
            ledger.stored(job.id for job in made)
            stored += n
        seen = {row[0] for row in looking.execute("SELECT id FROM duly_ended WHERE state = 'succeeded'")}
        for job in seen - done:
            ledger.write("done", job, 0)
        done |= seen
        time.sleep(0.001)
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    os._exit(0)  # nothing is closed: nothing is tidied up


if __name__ == "__main__":
    main()
