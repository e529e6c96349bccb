"""A project folder with an app in it, and two ways to run `duly` there: in this process, and as a real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from duly import Duly
from duly.cli import main
from tests.helpers import ROOT, eventually, opened

APP = """
import os, signal, time
from duly import Backoff, Duly, current_job

jobs = Duly()

@jobs.task
def add(x: int, y: int = 2) -> int:
    return x + y

@jobs.task(queue="mail", retry=Backoff.fixed("10ms", max_attempts=2))
def send(to: str) -> None:
    import logging
    logging.getLogger("shop").warning("sending to %s", to)
    raise ValueError(f"no such address: {to}")

@jobs.task
def nap(seconds: float, started: str = "") -> str:
    if started:
        open(started, "a").write("started\\n")
    for _ in range(int(seconds * 100)):
        time.sleep(0.01)
    if started:
        open(started, "a").write("ended\\n")
    return "rested"

@jobs.task
def patient(seconds: float) -> str:
    job = current_job()
    job.progress(0.4, "halfway, nearly")
    if job.wait_cancelled(seconds):
        raise InterruptedError
    return "rested"

@jobs.task
def pid() -> int:
    return os.getpid()
"""


class Answer(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Project:
    """A folder with an app; commands run in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self._started: list[Started] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def duly(self, *arguments: str, stdin: str | None = None) -> Answer:
        """Run a command in this process."""
        result = CliRunner().invoke(main, list(arguments), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def ok(self, *arguments: str) -> Answer:
        """Run a command that must succeed."""
        answer = self.duly(*arguments)
        assert answer.code == 0, answer
        return answer

    def start(self, *arguments: str) -> Started:
        """Run a command in a process of its own."""
        started = Started(arguments, self.folder, self.url)
        self._started.append(started)
        return started

    def start_isolated(self, *arguments: str) -> Started:
        """Run a command as the installed script does: without the current directory on its path."""
        started = Started(arguments, self.folder, self.url, "-P")
        self._started.append(started)
        return started

    def close(self) -> None:
        for started in self._started:
            started.close()


class Started:
    """A `duly` process; what it prints is kept in a file."""

    def __init__(self, arguments: tuple[str, ...], folder: Path, url: str, *options: str) -> None:
        self._log = folder / f"output-{len(list(folder.glob('output-*')))}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *options, "-m", "duly", *arguments],
                cwd=folder,
                env={**environment, "PYTHONPATH": str(ROOT / "src"), "DULY_URL": url},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                process_group=0,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def says(self, text: str, within: float = 20.0, times: int = 1) -> None:
        """Wait until it has printed something."""
        try:
            eventually(lambda: self.output.count(text) >= times or self.process.poll() is not None, within, 0.02)
        except AssertionError:
            raise AssertionError(f"it never said {text!r}:\n{self.output}") from None
        assert self.output.count(text) >= times, f"it ended without saying {text!r}:\n{self.output}"

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ends(self, within: float = 30.0) -> int:
        """Wait for it to end; returns its exit code."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end:\n{self.output}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in an empty folder, without settings from outside; forget the modules that were loaded from it."""
    for name in list(os.environ):
        if name.startswith("DULY_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    paths, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = paths
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and file.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A folder with `app.py`, on a fresh database; the test runs once on each kind."""
    monkeypatch.setenv("DULY_URL", database_url)
    project = Project(tmp_path, database_url)
    project.write("app.py", APP)
    yield project
    project.close()


@pytest.fixture
def sqlite_project(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """The same on SQLite alone, for what does not depend on the database."""
    monkeypatch.setenv("DULY_URL", sqlite_url)
    project = Project(tmp_path, sqlite_url)
    project.write("app.py", APP)
    yield project
    project.close()


@pytest.fixture
def bare(tmp_path: Path) -> Project:
    """An empty folder, and no database said."""
    return Project(tmp_path, "")


@pytest.fixture
def jobs(project: Project) -> Iterator[Duly]:
    """The project's database, to look into."""
    with opened(project.url) as jobs:
        yield jobs


@pytest.fixture
def sqlite_jobs(sqlite_project: Project) -> Iterator[Duly]:
    """The same for SQLite alone."""
    with opened(sqlite_project.url) as jobs:
        yield jobs
