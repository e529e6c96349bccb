"""A worker process for tests: `python -m tests.worker.program URL LEDGER OPTIONS`.

Says "ready" when its worker has started; stops when its standard input ends. OPTIONS is JSON: `settings` for `Duly`,
`worker` for the worker, `limit` for the limited task, `blind` to make it unable to see that other processes are gone.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from duly import Duly
from duly.worker import identity
from tests.helpers import Ledger
from tests.worker.tasks import declare


def main() -> None:
    """Run a worker until nobody needs it."""
    url, ledger, text = sys.argv[1:4]
    options = json.loads(text)
    logging.basicConfig(level=logging.ERROR)
    if options.get("blind"):
        identity.is_gone = lambda *_, **__: False
    jobs = Duly(url, **options.get("settings", {}))
    declare(jobs, Ledger(Path(ledger)), limit=options.get("limit", 3))
    with jobs.worker(**options.get("worker", {})):
        print("ready", flush=True)
        sys.stdin.read()
    jobs.close()


if __name__ == "__main__":
    main()
