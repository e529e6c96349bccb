"""Forget jobs that have ended, as a worker's upkeep does it.

Run as `python -m drivers.duly_prune URL`; prints one line of JSON: how many, and in how many seconds.
"""

import json
import sys
import time

from duly.domain.states import State
from duly.store.store import Store

if __name__ == "__main__":
    store = Store.open(sys.argv[1])
    store.next_due_us()  # opens the connection
    gone, began = 0, time.monotonic()
    while some := store.prune_jobs(State.SUCCEEDED, 0):
        gone += some
    print(json.dumps({"gone": gone, "seconds": time.monotonic() - began}))
    store.close()
