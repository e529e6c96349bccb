"""A process that looks for alerts: `python -m tests.alerts.program URL LEDGER OPTIONS`.

Says "ready" when its worker has started; stops when its standard input ends. What it is told of is written to the
ledger. OPTIONS is JSON: `alerts` for the settings; `fault`, where it dies or stands still: "die looking" (after it took
the turn), "die telling" (after it has called, before it writes that down); `lease` of a notice, in seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from duly import AlertEvent, Duly
from duly.alerts import deliver, evaluate
from duly.store.store import Store
from tests.helpers import Ledger


def main() -> None:
    """Run a worker until nobody needs it."""
    url, path, text = sys.argv[1:4]
    options, ledger = json.loads(text), Ledger(Path(path))
    fault = options.get("fault")
    if "lease" in options:
        deliver.LEASE_US = int(options["lease"] * 1e6)
    jobs = Duly(url, alerts=options["alerts"])

    @jobs.on_alert
    def told(event: AlertEvent) -> None:
        ledger.write(f"{event.rule} {event.subject} {event.notice_id}", event.event)
        if fault == "die telling":
            os.kill(os.getpid(), signal.SIGKILL)

    if fault == "die looking":

        def die(store: Store, *, scheduled: bool) -> None:
            ledger.write("looking", "died")
            os.kill(os.getpid(), signal.SIGKILL)

        vars(evaluate)["take_standing"] = die
    with jobs.worker():
        print("ready", flush=True)
        sys.stdin.read()
    jobs.close()


if __name__ == "__main__":
    main()
