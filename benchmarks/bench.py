"""What a workload works with: fresh databases, one-shot drivers, worker processes and their run logs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import machine
from contenders import Contender
from drivers.common import RECORD
from postgres import Server, find_programs, running_server
from redis_server import Redis, find_program, running_redis
from venvs import FOLDER, HERE, Environments, environment

LONGEST_CALL = 300
IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


class BenchError(Exception):
    """A driver failed or a worker stalled: the run is void, the others go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything; `scaled` makes a quick rehearsal of it."""

    drain_jobs: int = 150_000
    bulk_jobs: int = 100_000
    enqueue_slices: int = 20
    enqueue_per_slice: int = 200
    latency_samples: int = 200
    idle_seconds: int = 60
    single_jobs: int = 3_000
    handler_jobs: int = 10_000
    payload_jobs: int = 10_000
    process_jobs: int = 200_000
    load_seconds: int = 10
    flood_jobs: int = 400_000
    urgent_jobs: int = 20
    imports: int = 10
    backlog_rows: int = 1_000_000
    backlog_jobs: int = 5_000
    waiting_rows: int = 10_000_000
    head_jobs: int = 10_000
    history_rows: int = 10_000_000
    prune_rows: int = 200_000
    crowd_jobs: int = 200_000
    mixed_jobs: int = 50_000
    burst_jobs: int = 100_000
    burst_every: int = 67

    def scaled(self, factor: float) -> "Sizes":
        return Sizes(**{size.name: max(2, round(getattr(self, size.name) * factor)) for size in fields(self)})


@dataclass(frozen=True, slots=True)
class Run:
    """One handler start, as the handler itself noted it."""

    number: int
    worker: int
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where one run's jobs are: on the PostgreSQL server, on a Redis of its own, or in a file."""

    name: str
    url: str
    server: Server | None = None
    redis: Redis | None = None

    @property
    def server_pid(self) -> int | None:
        server = self.server or self.redis
        return server.pid if server is not None else None

    def queries(self) -> int | None:
        """Statements or commands run so far; nothing counts them in a file."""
        if self.redis is not None:
            return self.redis.commands()
        return self.server.statements(self.name) if self.server is not None else None

    def size(self) -> int:
        """Bytes on the disk; not for Redis."""
        if self.server is not None:
            return int(self.server.ask(f"SELECT pg_database_size('{self.name}')"))
        return Path(self.url.removeprefix("sqlite:///")).stat().st_size

    def bring_to_rest(self) -> None:
        if self.server is not None:
            self.server.ask("VACUUM ANALYZE", self.name)
            self.server.ask("CHECKPOINT")


class Worker:
    """Worker processes that are running (mostly one), and the log their handlers write."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], log: Path, errors: Path) -> None:
        self._processes = processes
        self._log = log
        self._errors = errors

    @property
    def pid(self) -> int:
        """The first of them."""
        return self._processes[0].pid

    def cpu_seconds(self) -> float:
        return sum(machine.cpu_seconds(process.pid) for process in self._processes)

    def resident_megabytes(self, field: str = "VmRSS") -> float:
        return sum(machine.resident_megabytes(process.pid, field) for process in self._processes)

    def wait_for_runs(self, count: int, patience: float = 30.0, most: float | None = None) -> None:
        """Wait until the log has `count` runs, as long as it grows at least every `patience` seconds.

        `most`: seconds after which what there is must do.
        """
        seen, give_up_at = -1, 0.0
        until = float("inf") if most is None else time.monotonic() + most
        while (runs := self._log.stat().st_size // RECORD.size) < count:
            if time.monotonic() > until:
                return
            if runs > seen:
                seen, give_up_at = runs, time.monotonic() + patience
            if any(process.poll() is not None for process in self._processes):
                raise BenchError(f"the worker ended after {runs} of {count} runs: {tail(self._errors)}")
            if time.monotonic() > give_up_at:
                raise BenchError(f"the worker stalled after {runs} of {count} runs: {tail(self._errors)}")
            time.sleep(0.005)

    def runs(self) -> list[Run]:
        return [Run(*record) for record in RECORD.iter_unpack(self._log.read_bytes())]

    def kill(self) -> None:
        """End them at once: what they have started is of no interest."""
        for process in self._processes:
            process.kill()
            process.wait()

    def stop(self, grace: float = 15.0) -> None:
        """Ask them to finish what they have started; end those that do not, with their children."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        give_up_at = time.monotonic() + grace
        for process in self._processes:
            try:
                process.wait(timeout=max(0.0, give_up_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                for pid in machine.family(process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait()


class Bench:
    """Everything a measurement needs, and the folder it all lives in."""

    def __init__(self, *, sizes: Sizes, folder: Path, stack: ExitStack, programs: Path | None) -> None:
        self.sizes = sizes
        self.folder = folder
        self.environments = Environments()
        self.busy_at_start: list[float] = []
        self._stack = stack
        self._programs = programs
        self._templates: set[str] = set()
        self._counter = 0
        self._logs = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-bench-", dir=_log_folder()))
        )

    @cached_property
    def server(self) -> Server:
        """PostgreSQL, started when first needed and stopped when the bench closes."""
        programs = self._programs or find_programs(self.environments, self.folder)
        return self._stack.enter_context(running_server(programs, self.folder / "postgres"))

    @property
    def server_was_used(self) -> bool:
        return "server" in self.__dict__

    @cached_property
    def redis_program(self) -> Path:
        """Redis, of which every run gets a fresh one."""
        return find_program(self.environments)

    @property
    def redis_was_used(self) -> bool:
        return "redis_program" in self.__dict__

    def prepare(self, contender: Contender) -> None:
        """Have all that the contender needs on this machine, or say what is missing."""
        self.environments.python(contender.library)
        if contender.database == "redis":
            _ = self.redis_program

    def wait_until_quiet(self) -> None:
        """Let the machine settle, and the disk write what it still has to."""
        os.sync()
        self.busy_at_start.append(machine.wait_until_quiet())

    @contextmanager
    def database(self, contender: Contender) -> Iterator[Database]:
        """A fresh database with the library's own tables, gone afterwards."""
        match contender.database:
            case "postgres":
                opened = self._postgres_database(contender)
            case "redis":
                opened = self._redis_database()
            case "sqlite":
                opened = self._sqlite_database(contender)
        with opened as database:
            yield database

    @contextmanager
    def _postgres_database(self, contender: Contender) -> Iterator[Database]:
        name = f"run_{self._next()}"
        self.server.ask(f"CREATE DATABASE {name} TEMPLATE {self._template(contender)}")
        try:
            yield Database(name=name, url=self.server.url(name), server=self.server)
        finally:
            self.server.ask(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def _redis_database(self) -> Iterator[Database]:
        with self._run_folder() as folder, running_redis(self.redis_program, folder) as redis:
            yield Database(name=folder.name, url=redis.url, redis=redis)

    @contextmanager
    def _sqlite_database(self, contender: Contender) -> Iterator[Database]:
        with self._run_folder() as folder:
            url = f"sqlite:///{folder / 'queue.db'}"
            self.call(contender, "setup", url)
            yield Database(name=folder.name, url=url)

    @contextmanager
    def _run_folder(self) -> Iterator[Path]:
        folder = self.folder / f"run_{self._next()}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def call(self, contender: Contender, role: str, url: str, **options: object) -> Any:
        """Run one role of a driver to its end and return its answer."""
        command = self._command(contender, role, url, self._logs / "unused", **options)
        return self.call_module(contender.library, command)

    def call_module(self, library: str, command: list[str]) -> Any:
        """Run a module of `drivers/` in a library's environment and return the JSON of its last line."""
        try:
            answer = subprocess.run(
                [self.environments.python(library), "-m", *command],
                capture_output=True,
                text=True,
                cwd=HERE,
                env=environment(),
                timeout=LONGEST_CALL,
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"{' '.join(command[:2])} took more than {LONGEST_CALL} s") from None
        if answer.returncode != 0:
            raise BenchError(f"{' '.join(command[:2])} failed: {answer.stderr.strip()[-1500:]}")
        return json.loads(answer.stdout.splitlines()[-1])

    @contextmanager
    def worker(self, contender: Contender, database: Database, processes: int = 1) -> Iterator[Worker]:
        """Worker processes with a log of their own, stopped afterwards."""
        number = self._next()
        log, errors = self._logs / f"runs_{number}", self.folder / f"worker_{number}.err"
        log.touch()
        started: list[subprocess.Popen[bytes]] = []
        worker = Worker(started, log, errors)
        try:
            for place in range(processes):
                started.append(self._start(contender, database, log, errors, place))
            yield worker
        finally:
            worker.stop()
            log.unlink()

    def _start(
        self, contender: Contender, database: Database, log: Path, errors: Path, place: int
    ) -> subprocess.Popen[bytes]:
        command = self._command(contender, "work", database.url, log, worker=place)
        with errors.open("ab") as stderr:
            return subprocess.Popen(
                [self.environments.python(contender.library), "-m", *command],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=HERE,
                env=environment(),
            )

    def _command(self, contender: Contender, role: str, url: str, log: Path, **options: object) -> list[str]:
        command = [f"drivers.{contender.library}_driver", role, f"--url={url}", f"--log={log}"]
        command += [f"--{name}={value}" for name, value in options.items()]
        return command + [f"--set={name}={value}" for name, value in contender.settings.items()]

    def _template(self, contender: Contender) -> str:
        """The database that a library's fresh ones are copied from, made when first needed."""
        name = f"template_{contender.library}"
        if name not in self._templates:
            self.server.ask(f"CREATE DATABASE {name}")
            self.call(contender, "setup", self.server.url(name))
            self._templates.add(name)
        return name

    def _next(self) -> int:
        self._counter += 1
        return self._counter


@contextmanager
def open_bench(*, sizes: Sizes, programs: Path | None) -> Iterator[Bench]:
    """A bench in a temporary folder on a real disk, with everything stopped and removed at the end."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-bench-", dir=_disk_folder()))
        )
        folder.chmod(0o711)
        yield Bench(sizes=sizes, folder=folder, stack=stack, programs=programs)


def count_runs(runs: list[Run], expected: int) -> dict[str, float]:
    """Exactly once, or how far from it."""
    times = Counter(run.number for run in runs)
    missing = sum(1 for number in range(expected) if number not in times)
    return {"runs": len(runs), "repeated": len(runs) - len(times), "missing": missing}


def tail(file: Path) -> str:
    return file.read_text(errors="replace").strip()[-1500:]


def _disk_folder() -> Path:
    """A folder for the databases that is not in memory, since fsync there would be free."""
    FOLDER.mkdir(exist_ok=True)
    for folder in (Path(tempfile.gettempdir()), Path("/var/tmp"), FOLDER):
        if folder.is_dir() and machine.file_system(folder) not in IN_MEMORY:
            return folder
    sys.exit("no folder on a real disk for the databases; set TMPDIR to one")


def _log_folder() -> Path | None:
    """In memory if possible: the run log is not what is measured."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None
