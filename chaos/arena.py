"""The place where workers are disturbed: their processes, a stream of jobs, and what is needed to judge the outcome."""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

from chaos.app import LEASE, application
from chaos.checker import PLACES, UNREACHABLE, Disturbed, Facts, Kill, connect, judge, percentile, read
from chaos.ledger import Ledger
from chaos.report import Report
from duly.domain.errors import DatabaseError

ROOT = Path(__file__).parents[1]
SWEEP = 1.0
"""How often a worker looks whether others are gone."""
START_SECONDS = 60.0
CHUNK = 200
BACKLOG = 1_000
"""How many jobs wait while a storm lasts."""
MOST_TIMES = 10
"""How many times the faults that were wanted a storm has before it is said that it showed nothing."""


class HasPid(Protocol):
    """A process."""

    @property
    def pid(self) -> int: ...


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(
        self,
        url: str,
        ledger: Path,
        options: dict[str, Any],
        *,
        command: list[str],
        env: dict[str, str],
        program: str = "chaos.app",
    ) -> None:
        self.process = subprocess.Popen(
            [*command, sys.executable, "-m", program, url, str(ledger), json.dumps(options)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._was_ready = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def ready(self, within: float = START_SECONDS) -> None:
        """Wait until its worker has started."""
        if not self.was_ready(within):
            raise RuntimeError(f"a worker process did not start within {within:.0f} s (exit {self.process.poll()})")

    def was_ready(self, within: float = 0.0) -> bool:
        """Whether its worker has ever started."""
        assert self.process.stdout is not None
        if not self._was_ready and select.select([self.process.stdout], [], [], within)[0]:
            self._was_ready = self.process.stdout.readline().strip() == "ready"
        return self._was_ready

    def close(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Arena:
    """One scenario's world. Disturbances are counted in `faults`, and told to the checker by `kill` and `disturb`."""

    def __init__(
        self,
        url: str,
        directory: Path,
        *,
        seed: int,
        jobs: int,
        faults: int,
        settings: dict[str, Any] | None = None,
        worker: dict[str, Any] | None = None,
        apart: bool = False,
        pool: int | None = None,
    ) -> None:
        self.url = url
        """Where workers find the database."""
        self.direct_url = url
        """Where the checker finds it, past whatever is put between."""
        self.directory = directory
        self.seed = seed
        self.chance = random.Random(seed)
        self.wanted_jobs = jobs
        self.wanted_faults = faults
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []
        self.settings = settings or {}
        self.lease = float(self.settings.get("lease", LEASE))
        self.worker = worker or ({"thread_slots": 8, "async_slots": 16} if url.startswith("postgres") else
                                 {"thread_slots": 4, "async_slots": 8})  # fmt: skip
        self.apart = apart
        self.pool = pool
        """How many connections a worker's application has; None: as many as it wants."""
        self.command: list[str] = []
        """What a worker's command line begins with, to put it into another world."""
        self.env: dict[str, str] = {}
        self.program = "chaos.app"
        """The module that is a worker's main program."""
        self.options: dict[str, Any] = {}
        """What else that program is told."""
        self.ledger = Ledger(directory / "ledger")
        self.app = application(url, self.ledger)
        self.app.migrate()
        self.facts = Facts(lease=self.lease)
        self.workers: list[WorkerProcess] = []
        self.stored = 0
        self._storming = threading.Event()
        self._producer: threading.Thread | None = None
        self._began = time.monotonic()

    def use(self, url: str) -> None:
        """Have workers and the producer find the database there from now on, through whatever is in between."""
        self.app.close()
        self.url, self.app = url, application(url, self.ledger)

    # -- jobs -------------------------------------------------------------------------------------------------

    def produce(
        self,
        *,
        seconds: float = 0.02,
        share: float = 0.05,
        backlog: int = BACKLOG,
        chunk: int = CHUNK,
        tasks: tuple[str, ...] = ("work", "awork"),
    ) -> None:
        """Have a thread enqueue jobs, a `share` of which takes up to `seconds`, so that there is always work.

        It goes on until `settle`, and until there were as many jobs as wanted.
        """
        chance = random.Random(self.seed + 1)

        def loop() -> None:
            while self._storming.is_set() or self.stored < self.wanted_jobs:
                try:
                    waiting = self.left(backlog)
                except UNREACHABLE:
                    waiting = backlog
                if waiting >= backlog:
                    time.sleep(0.01)
                    continue
                try:
                    calls = [{"seconds": _drawn(chance, seconds, share)} for _ in range(chunk)]
                    made = self.app[chance.choice(tasks)].enqueue_many(calls)
                except (DatabaseError, *UNREACHABLE):  # nobody was told that these are stored
                    self.faults["refused enqueues"] += 1
                    time.sleep(0.05)
                else:
                    self.ledger.stored(job.id for job in made)
                    self.stored += len(made)

        self._storming.set()
        self._producer = threading.Thread(target=loop, name="producer", daemon=True)
        self._producer.start()

    def flow(self, n: int = 200, within: float = START_SECONDS) -> None:
        """Wait until so many more jobs have run: a fault must find something to disturb."""
        deadline = time.monotonic() + within
        wanted = n + self._ends()
        while self._ends() < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"fewer than {n} jobs ran within {within:.0f} s, seed {self.seed}")
            time.sleep(0.05)

    def _ends(self) -> int:
        return self.ledger.path.read_bytes().count(b"end ")

    # -- workers and what is done to them -----------------------------------------------------------------------

    def start(self, n: int = 1, **more: Any) -> list[WorkerProcess]:
        """Start workers, and wait until they work."""
        started = [self.start_soon(**more) for _ in range(n)]
        for process in started:
            process.ready()
        return started

    def start_soon(self, *, apart: bool | None = None, worker: dict[str, Any] | None = None) -> WorkerProcess:
        """Start a worker, and do not wait for it."""
        options = {
            "settings": self.settings,
            "worker": self.worker if worker is None else worker,
            "apart": self.apart if apart is None else apart,
            "pool": self.pool,
            **self.options,
        }
        process = WorkerProcess(
            self.url, self.ledger.path, options, command=self.command, env=self.env, program=self.program
        )
        self.workers.append(process)
        return process

    def tend(self) -> None:
        """Start those again that could not start, for want of a database, as whoever looks after them would."""
        for process in list(self.workers):
            if process.process.poll() is not None and not process.was_ready():
                process.close()
                self.workers.remove(process)
                self.start_soon()
                self.faults["starts refused"] += 1

    def kill(self, process: WorkerProcess) -> None:
        """End a worker at once. Noted before, for others may have its runs before we have reaped it."""
        self.facts.kills.append(Kill(process.pid, time.monotonic(), time.time()))
        process.close()
        self.workers.remove(process)
        self.faults["kills"] += 1

    def goes_on(self, faults: int) -> bool:
        """Whether the storm is to go on after so many faults: until there were enough, and a run was cut short.

        Chance may have it that whoever was struck ran nothing: then it strikes again.
        """
        if faults < self.wanted_faults:
            return True
        return faults < MOST_TIMES * self.wanted_faults and not self._cut_short(self.lease + 2 * SWEEP)

    def _cut_short(self, within: float) -> bool:
        """Whether a run that was cut short is on record, or will be soon."""
        table = "duly.runs" if self.direct_url.startswith("postgres") else "duly_runs"
        deadline = time.monotonic() + within
        while True:
            with suppress(*UNREACHABLE), closing(connect(self.direct_url)) as connection:
                asked = connection.execute(f"SELECT count(*) FROM {table} WHERE outcome = 'crashed'")
                if asked.fetchone()[0]:
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)

    def disturbing(self, process: HasPid) -> Callable[[], None]:
        """A worker cannot renew its leases from now until the answer is called."""
        since = time.monotonic()

        def over() -> None:
            # It needs a moment to say again that it lives.
            self.facts.disturbed.append(Disturbed(process.pid, since, time.monotonic() + self.lease))

        return over

    def pause(self, mean: float) -> None:
        """Wait for a random time."""
        time.sleep(self.chance.uniform(0, 2 * mean))

    # -- the end ------------------------------------------------------------------------------------------------

    def settle(self, within: float = 600.0) -> None:
        """The storm is over: wait until every job has ended. Raises, with what is left, if that takes too long."""
        self._storming.clear()
        deadline = time.monotonic() + within
        left = -1
        while left != 0 or (self._producer is not None and self._producer.is_alive()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} jobs are left after {within:.0f} s without a fault, seed {self.seed}")
            time.sleep(0.2)
            self.tend()
            with suppress(*UNREACHABLE):
                left = self.left(BACKLOG)

    def left(self, most: int) -> int:
        """How many jobs have not ended, counted up to `most`."""
        prefix = "duly." if self.direct_url.startswith("postgres") else "duly_"
        some = " UNION ALL ".join(f"SELECT id FROM {prefix}{name}" for name in PLACES)
        with closing(connect(self.direct_url)) as connection:
            asked = connection.execute(f"SELECT count(*) FROM (SELECT id FROM ({some}) AS a LIMIT {most}) AS b")
            return int(asked.fetchone()[0])

    def report(self, scenario: str, database: str, *, log: Path | None = None, bites: bool = True) -> Report:
        """Judge. `bites`: runs must have been cut short, or nothing is shown."""
        ended = read(self.direct_url)
        verdict = judge(self.ledger.lines(), ended, self.facts)
        circles = [] if log is None else _circles(log.read_text(errors="replace"))
        allowed = self.lease + 2 * SWEEP
        p99 = percentile(verdict.delays, 0.99)
        problems = list(self.problems)
        for what in ("lost", "doubled", "robbed", "stale"):
            if found := getattr(verdict, what):
                problems.append(f"{len(found)} {what}, such as {found[0]}")
        if gone := sum(each.process.poll() is not None and each.was_ready() for each in self.workers):
            problems.append(f"{gone} workers have ended by themselves")
        if ended.left:
            problems.append(f"{ended.left} jobs have not ended")
        problems += [f"{n} deadlocks: {circle}" for circle, n in Counter(circles).most_common()]
        if p99 is not None and p99 > allowed:
            problems.append(f"rescue took {p99:.1f} s at p99, allowed are {allowed:.1f} s")
        if bites and not verdict.cut_short:
            problems.append("no run was cut short: nothing is shown")
        return Report(
            scenario=scenario,
            database=database,
            jobs=verdict.jobs,
            runs=verdict.runs,
            faults=dict(self.faults),
            cut_short=verdict.cut_short,
            lost=len(verdict.lost),
            doubled=len(verdict.doubled),
            robbed=len(verdict.robbed),
            deadlocks=len(circles),
            rescue_p50=percentile(verdict.delays, 0.5),
            rescue_p99=p99,
            rescue_allowed=allowed,
            seconds=time.monotonic() - self._began,
            seed=self.seed,
            problems=problems,
        )

    def close(self) -> None:
        """End everything."""
        self._storming.clear()
        self.wanted_jobs = 0
        for process in list(self.workers):
            process.close()
        if self._producer is not None:
            self._producer.join(30)
        self.app.close()
        self.ledger.close()


def _circles(log: str) -> list[str]:
    """What the server says of each deadlock: which statements waited for each other."""
    told = (" ".join(re.split(r"\n\S.*HINT:", text)[0].split()) for text in log.split("deadlock detected")[1:])
    return [" <-> ".join(sorted(part[:200] for part in re.split(r" Process \d+: ", text)[1:])) for text in told]


def _drawn(chance: random.Random, seconds: float, share: float) -> float:
    """How long a job takes: most take no time."""
    return chance.random() * seconds if chance.random() < share else 0.0
