"""`python -m examples.tenant_scheduler`: four processes, two tenants, one `kill -9`; half a minute."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .control import Controlled
from .ledger import Ledger, LedgerRun, run_at_once, run_twice

EVERYWHERE = ("acme/report", "globex/report")


def main() -> None:
    """Run the show, on a temporary file or on the database that DULY_URL names."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("DULY_URL", f"sqlite:///{Path(folder, 'scheduler.db')}")
        ledger = Ledger(Path(folder, "ledger.jsonl"))
        processes = {name: Controlled(name, ledger.path) for name in ("anna", "ben", "cleo", "dora")}
        try:
            for process in processes.values():
                process.wait_until_up()
            Show(processes, ledger).run()
        finally:
            for process in processes.values():
                process.let_go()
            for process in processes.values():
                process.close()


class Show:
    """What is done, told, and shown as a table."""

    def __init__(self, processes: dict[str, Controlled], ledger: Ledger) -> None:
        self.processes = processes
        self.ledger = ledger
        self.begun = time.monotonic()

    def run(self) -> None:
        """Run the show, about 25 seconds."""
        sharing = [self.processes[name] for name in ("anna", "ben", "cleo")]
        dora = self.processes["dora"]
        self.tell(
            "Anna, Ben and Cleo register a report of each of two tenants, every 2 s. Dora registers only a backup."
        )
        for process in sharing:
            for place in EVERYWHERE:
                process.say(f"register {place} 2s work 1")
        dora.say("register globex/backup 3s nap 0.2")
        self.tell("All know of all jobs, whoever registered them. Dora, asked for the jobs, says:")
        print("".join(f"      {line}\n" for line in dora.say("jobs", lines=3)), end="")

        self.wait_until(8)
        self.tell("Runs so far: each occurrence in one process; Dora runs only what she has the function of.")
        self.table()

        run = self.wait_for(lambda: self.under_way("acme/report"))
        victim = self.processes[run.process]
        victim.kill(signal.SIGKILL)
        killed = time.monotonic()
        self.tell(f"{run.process.title()} was in the middle of acme/report, and got kill -9.")
        successor = self.wait_for(lambda: self.after("acme/report", run))
        took = successor.began - killed
        print(f"      {successor.process.title()} took acme/report over {took:.1f} s later")
        self.wait_until(max(16, time.monotonic() - self.begun + 3))
        self.table()

        one, other = (process for process in sharing if process is not victim)
        one.say("unregister globex/report")
        self.tell(f"{one.name.title()} unregisters globex/report: {other.name.title()} runs it no more either.")
        time.sleep(1.5)  # what was under way ends
        before = self.count("globex/report")
        self.wait_until(time.monotonic() - self.begun + 5)
        self.table()
        print(f"      in these 5 s globex/report ran {self.count('globex/report') - before} times")
        runs = self.ledger.runs()
        cut = sum(each.ended is None for each in runs if each.process == victim.name)
        self.tell(
            f"In all {len(runs)} runs, {cut} of them cut off by the kill. "
            f"Occurrences done twice: {len(run_twice(runs))}. Jobs run twice at once: {len(run_at_once(runs))}."
        )

    def under_way(self, place: str) -> LedgerRun | None:
        """The run of a job that is in its middle, if there is one."""
        for run in self.ledger.runs():
            age = time.monotonic() - run.began
            if run.place == place and run.ended is None and 0.2 < age < 0.7:
                return run
        return None

    def after(self, place: str, run: LedgerRun) -> LedgerRun | None:
        """The next run of the same job."""
        return next((each for each in self.ledger.runs() if each.place == place and each.fence > run.fence), None)

    def count(self, place: str) -> int:
        """How often a job has run."""
        return sum(run.place == place for run in self.ledger.runs())

    def table(self) -> None:
        """Print who ran what how often."""
        runs = self.ledger.runs()
        print("      " + f"{'job':<16}" + "".join(f"{name:>8}" for name in self.processes) + "   twice  cut off")
        for place in sorted({run.place for run in runs}):
            those = [run for run in runs if run.place == place]
            counts = (sum(run.process == name for run in those) for name in self.processes)
            cut = sum(run.ended is None and time.monotonic() - run.began > 1.2 for run in those)
            line = f"{place:<16}" + "".join(f"{count or '-':>8}" for count in counts)
            print(f"      {line}{len(run_twice(those)):>8}{cut:>9}", flush=True)

    def tell(self, text: str) -> None:
        """Say what happens."""
        print(f"\n{time.monotonic() - self.begun:3.0f} s  {text}", flush=True)

    def wait_until(self, second: float) -> None:
        """Wait until so many seconds after the beginning."""
        time.sleep(max(0.0, self.begun + second - time.monotonic()))

    def wait_for(self, condition: Callable[[], LedgerRun | None]) -> LedgerRun:
        """Wait until there is such a run."""
        while (found := condition()) is None:
            time.sleep(0.02)
        return found


if __name__ == "__main__":
    main()
