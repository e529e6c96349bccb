"""The story of an upgrade by real processes: the version before works, this one migrates, both work, this one alone.

    python -m tests.upgrades.together sqlite:////tmp/upgrade.db --seconds 60
    DULY_PREVIOUS=dist/duly-0.1.0-py3-none-any.whl python -m tests.upgrades.together postgresql://...

The database must be without tables. The suite tells it in a few seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from duly import Duly
from tests.helpers import ROOT, Entry, Ledger, WorkerProcess, eventually
from tests.store import invariants
from tests.store.raw import Raw
from tests.upgrades.program import KEYS, application
from tests.upgrades.steps import COMPATIBLE, INDEX, TABLE
from tests.upgrades.trees import Tree, previous, this

NOTHING = (COMPATIBLE,)
"""A migration that does nothing."""
BUSY = ("jobs", "scheduled", "waiting", "running", "ended", "runs", "rollups", "unique_keys", "workers", "recurring")
QUIET = ("parked", "queues", "schedules", "gates", "keys", "admitted", "audit", "alerts", "alert_notices")
EVERYWHERE = (
    *(COMPATIBLE + f"ALTER TABLE duly.{table} ADD COLUMN colour text DEFAULT 'red';" for table in BUSY),
    COMPATIBLE + "".join(f"ALTER TABLE duly.{table} ADD COLUMN colour text DEFAULT 'red';" for table in QUIET),
    TABLE,
    INDEX,
)
"""Migrations that add to every table that workers use: who takes columns by their position would stumble."""
PATIENCE = 60.0


class Process(WorkerProcess):
    """A worker or a producer of one version."""

    def __init__(self, tree: Tree, url: str, ledger: Ledger, **options: object) -> None:
        self.tree = tree
        text = json.dumps({"folder": str(tree.folder), **options})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.upgrades.program", url, str(ledger.path), text],
            cwd=ROOT,
            env=tree.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


class Story:
    """One upgrade. Each method is a chapter; the last one judges."""

    def __init__(self, url: str, folder: Path, added: tuple[str, ...], *, seconds: float, crew: int = 1) -> None:
        self.url = url
        self.old = previous(folder / "old")
        self.new = this(folder / "new", self.old, *added)
        self.ledger = Ledger(folder / "ledger")
        self.seconds = seconds
        self.crew = crew
        self.raw = Raw(url)
        self.killed: set[int] = set()
        self.held = 0
        self._stack = ExitStack()

    def __enter__(self) -> Story:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.raw.close()

    def start(self, *which: Tree, produce: str | None = None) -> list[Process]:
        """Start a worker of each of these versions, or a producer; return when all go."""
        options = {} if produce is None else {"produce": produce}
        started = [Process(tree, self.url, self.ledger, **options) for tree in which]
        for process in started:
            self._stack.callback(process.close)
        for process in started:
            process.ready(60)
        return started

    # -- chapters ---------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Tell it from beginning to end."""
        assert self.new.schema > self.old.schema, "there is nothing to migrate"
        self.old.run("migrate", "--url", self.url)
        olds, producers = self.start(*[self.old] * self.crew), self.start(self.old, produce="old")
        self._declare_beat()
        self.works_on(olds)

        said = self.new.run("migrate", "--url", self.url)
        assert f"applied {self.old.schema + 1}" in said, said
        assert self.version() == self.new.schema
        self.works_on(olds)

        news = self.start(*[self.new] * self.crew)
        producers += self.start(self.new, produce="new")
        self.works_on(olds + news)
        time.sleep(self.seconds)

        olds = self.rescues(killed=olds, by=news)
        news = self.rescues(killed=news, by=olds)
        self.works_on(olds + news)

        for process in [*olds, producers[0]]:
            assert process.leave() == 0, "it should have ended well"
        self.works_on(news)

        for process in producers[1:]:
            assert process.leave() == 0
        self.drains()
        (back,) = self.start(self.old)  # going back is starting the version before again
        for process in news:
            assert process.leave() == 0
        for number in range(20):
            self.app["note"].enqueue(f"back-{number}")
        eventually(lambda: self._ran(back.pid), PATIENCE, every=0.05)
        self.drains()
        assert back.leave() == 0
        self.judge()

    def works_on(self, processes: list[Process]) -> None:
        """See that each of these workers runs jobs from now on."""
        before = Counter(entry.pid for entry in self.ledger.entries())
        eventually(
            lambda: all(self._ran(process.pid) > before[process.pid] for process in processes), PATIENCE, every=0.05
        )

    def rescues(self, *, killed: list[Process], by: list[Process]) -> list[Process]:
        """Kill workers of one version at their work: those of the other end it. Returns new ones of that version."""
        names = [f"held-{self.held + n}" for n in range(6 * len(killed))]
        self.held += len(names)
        for name in names:
            self.app["hold"].enqueue(name, 1.0)
        pids = {process.pid for process in killed}
        eventually(lambda: any(entry.pid in pids for entry in self._held("start", names)), PATIENCE, every=0.01)
        for process in killed:
            process.kill()
        self.killed |= pids
        cut = {entry.name for entry in self._held("start", names) if entry.pid in pids}
        cut -= {entry.name for entry in self._held("end", names) if entry.pid in pids}
        assert cut, "none was killed at its work"
        eventually(lambda: {entry.name for entry in self._held("end", names)} == set(names), PATIENCE, every=0.05)
        others = {process.pid for process in by}
        finishers = {entry.pid for entry in self._held("end", list(cut)) if entry.pid not in pids}
        assert finishers <= others, f"ended by {finishers}, not by {others}"
        return self.start(*(process.tree for process in killed))  # those of the version before start on newer tables

    def drains(self) -> None:
        """Wait until nothing is left that somebody may run."""
        left = "SELECT count(*) FROM duly.waiting WHERE queue = 'default'"
        eventually(lambda: self.raw.one(left) == 0 and not self._running(), PATIENCE, every=0.05)

    def judge(self) -> None:
        """Nothing lost, nothing twice, no tick twice, keys and limits held; and the tables are as they must be."""
        sent = {entry.name for entry in Ledger(Path(f"{self.ledger.path}.sent")).entries()}
        ran = Counter(entry.name for entry in self.ledger.entries("ran"))
        assert sent <= ran.keys(), f"lost: {sorted(sent - ran.keys())[:10]}"
        by_dead = {entry.name for entry in self.ledger.entries() if entry.pid in self.killed}
        twice = [name for name, times in ran.items() if times > 1 and name not in by_dead]
        assert not twice, f"ran twice: {twice[:10]}"
        limited = Ledger(Path(f"{self.ledger.path}.limited"))
        assert limited.count() > 0
        cut = {entry.name for entry in limited.entries("start")} - {entry.name for entry in limited.entries("end")}
        alive = Ledger(limited.path.with_suffix(".alive"))
        lines = [entry for entry in limited.entries() if entry.pid not in self.killed and entry.name not in cut]
        alive.path.write_text("".join(json.dumps(list(entry)) + "\n" for entry in lines))
        assert alive.most_at_once() <= 3, "more at once than the limit allows"
        assert self.raw.one("SELECT count(*) FROM duly.waiting WHERE queue = 'nobody'") == 5 / KEYS, "a key held twice"
        ticks = Counter(row[0] for row in self.raw.rows("SELECT result FROM duly.runs WHERE outcome = 'succeeded' "
                        "AND job_id IN (SELECT id FROM duly.recurring)"))  # fmt: skip
        assert len(ticks) > 2
        assert max(ticks.values()) == 1, "a tick ran twice"
        assert self.raw.one("SELECT count(*) FROM duly.ended WHERE state <> 'succeeded'") == 0
        invariants.check(self.raw)

    # -- small things -----------------------------------------------------------------------------------------

    @cached_property
    def app(self) -> Duly:
        """The application, by this process's own code: as good as the version before."""
        jobs = application(self.url, self.ledger, self.ledger)
        self._stack.callback(jobs.close)
        return jobs

    def version(self) -> int:
        """What version the tables have."""
        return int(self.raw.one("SELECT max(version) FROM duly.schema_version"))

    def _declare_beat(self) -> None:
        self.app["beat"].recur(every="1s")

    def _ran(self, pid: int) -> int:
        return sum(entry.pid == pid for entry in self.ledger.entries())

    def _held(self, event: str, names: list[str]) -> list[Entry]:
        return [entry for entry in self.ledger.entries(event) if entry.name in names]

    def _running(self) -> int:
        return int(self.raw.one("SELECT count(*) FROM duly.running WHERE task <> 'beat'"))


def main() -> None:
    """Tell it for as long as one likes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long both versions work side by side")
    parser.add_argument("--nothing", action="store_true", help="add a migration that does nothing, not ones everywhere")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        added = NOTHING if given.nothing else EVERYWHERE
        with Story(given.url, Path(folder), added, seconds=given.seconds, crew=2) as story:
            begun = time.monotonic()
            story.tell()
            ran = len(story.ledger.entries("ran"))
        took = time.monotonic() - begun
        print(f"{story.old.version} and {story.new.version}: {ran} jobs in {took:.0f} s, all as it should be")


if __name__ == "__main__":
    main()
