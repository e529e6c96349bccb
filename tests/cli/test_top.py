"""`duly top`: one frame for scripts, and a live view that heeds keys and leaves the terminal as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from duly import Backoff, Duly
from duly.cli.text import width_of
from duly.cli.top_frame import Frame, Line, ordered
from duly.domain.clock import from_us
from duly.store.ops_observe import Ran
from tests.cli.conftest import Project
from tests.helpers import ROOT, eventually


@pytest.fixture
def busy(project: Project, jobs: Duly) -> Project:
    """A project in which something waits, ran, failed and is wrong."""

    @jobs.task(queue="mail", retry=Backoff.fixed(0, max_attempts=1))
    def send(to: str) -> None:
        raise ValueError(f"no such address: {to}")

    @jobs.task
    def add() -> None: ...

    with jobs.worker(["mail"]) as worker:
        send.enqueue_many([{"to": f"user {n}"} for n in range(12)])
        eventually(lambda: worker.settled == 12)
    for _ in range(7):
        add.enqueue()
    jobs.alerts.configure(depth=5)
    jobs.alerts.check()
    return project


def test_one_frame_shows_queues_tasks_workers_alerts_and_failures_in_80_by_24(
    busy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    shown = busy.ok("top", "--once").out
    lines = shown.rstrip("\n").split("\n")
    assert len(lines) <= 24
    assert max(width_of(line) for line in lines) <= 80
    assert "7 wait, 0 run, 0 scheduled, 0 parked   0 workers, 0 slots" in shown
    row = next(line for line in lines if line.startswith("mail"))
    assert row.split()[:2] == ["mail", "send"]
    assert "100%" in row
    assert "depth: 7 jobs wait in queue default" in shown
    assert "ValueError: no such address: user" in shown


def test_json_has_the_same_as_data(busy: Project) -> None:
    data = busy.ok("top", "--json").json
    assert {(each["queue"], each["task"], each["waiting"]) for each in data["tasks"]} == {
        ("default", "add", 7),
        ("mail", "send", 0),
    }
    assert [alert["rule"] for alert in data["alerts"]] == ["depth", "failed_rate"]
    assert len(data["failures"]) == 4
    assert data["failed_ratio"] == 1


def test_many_tasks_are_cut_to_what_fits(
    sqlite_project: Project, sqlite_jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    for n in range(60):
        sqlite_jobs.declare(lambda: None, {"name": f"task_with_quite_a_long_name_{n}"})
        sqlite_jobs.enqueue(f"task_with_quite_a_long_name_{n}")
    shown = sqlite_project.ok("top", "--once").out
    assert len(shown.rstrip("\n").split("\n")) <= 24
    assert "more" in shown


def test_an_empty_database_is_shown_as_that(sqlite_project: Project) -> None:
    sqlite_project.ok("migrate")
    assert "nothing waits" in sqlite_project.ok("top", "--once").out


def test_without_rich_it_says_what_to_install(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_project.ok("migrate")
    for name in [name for name in sys.modules if name == "rich" or name.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    answer = sqlite_project.duly("top", "--once")
    assert answer.code == 2
    assert "pip install 'duly[rich]'" in answer.err
    assert "duly stats --watch" in answer.err
    assert sqlite_project.ok("top", "--json").json["workers"] == 0


def test_control_characters_do_not_reach_the_terminal(sqlite_project: Project, sqlite_jobs: Duly) -> None:
    @sqlite_jobs.task(retry=Backoff.fixed(0, max_attempts=1))
    def bad() -> None:
        raise ValueError("\x1b]0;owned\x07[bold]markup[/bold]")

    bad.enqueue()
    with sqlite_jobs.worker() as worker:
        eventually(lambda: worker.settled == 1)
    shown = sqlite_project.ok("top", "--once").out
    assert "\x1b]0" not in shown
    assert "[bold]markup[/bold]" in shown


def test_lines_are_sorted_by_what_is_asked() -> None:
    a = Line("q", "a", waiting=1, running=9, oldest=5.0, ran=Ran(runs=3, failed=2))
    b = Line("q", "b", waiting=2, running=1, oldest=9.0, ran=Ran(runs=9, failed=1))
    assert [line.task for line in ordered([a, b], "waiting")] == ["b", "a"]
    assert [line.task for line in ordered([a, b], "running")] == ["a", "b"]
    assert [line.task for line in ordered([a, b], "failed")] == ["a", "b"]
    assert [line.task for line in ordered([a, b], "oldest")] == ["b", "a"]
    assert [line.task for line in ordered([a, b], "runs")] == ["b", "a"]
    assert [line.task for line in ordered([b, a], "name")] == ["a", "b"]


# -- live -------------------------------------------------------------------------------------------------------------


class Terminal:
    """`duly top` in a terminal of 80 by 24."""

    def __init__(self, project: Project) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "duly", "top", "--every", "200ms", "--url", project.url],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"},
            process_group=0,
        )
        self.output = ""

    def read(self) -> str:
        """All that it has drawn so far."""
        while select.select([self.master], [], [], 0.02)[0]:
            self.output += os.read(self.master, 65_536).decode(errors="replace")
        return self.output

    def shows(self, text: str) -> None:
        eventually(lambda: text in self.read(), within=20)

    def press(self, key: str) -> None:
        os.write(self.master, key.encode())

    def ends(self) -> int:
        deadline = time.monotonic() + 15
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it did not end"
            self.read()
        self.read()
        return self.process.returncode

    def is_as_before(self) -> bool:
        """Whether the terminal is as it was found: it shows what is typed, and has its cursor and its screen."""
        return (
            termios.tcgetattr(self._slave) == self.before and "\x1b[?1049l" in self.output.rpartition("\x1b[?1049h")[2]
        )


@contextmanager
def live(project: Project) -> Iterator[Terminal]:
    terminal = Terminal(project)
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
        os.close(terminal._slave)


def test_it_goes_on_pauses_sorts_and_quits_by_keys(sqlite_project: Project, sqlite_jobs: Duly) -> None:
    @sqlite_jobs.task
    def add() -> None: ...

    add.enqueue()
    with live(sqlite_project) as terminal:
        terminal.shows("1 wait")
        add.enqueue()
        terminal.shows("2 wait")
        terminal.shows("sort by: waiting")
        terminal.press("\t")
        terminal.shows("sort by: running")
        terminal.press("\x1b[D")
        terminal.press("p")
        terminal.shows("PAUSED")
        terminal.press("p")
        terminal.press("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before()


def test_ctrl_c_ends_it_cleanly(sqlite_project: Project) -> None:
    sqlite_project.ok("migrate")
    with live(sqlite_project) as terminal:
        terminal.shows("q quit")
        os.killpg(terminal.process.pid, signal.SIGINT)
        assert terminal.ends() == 0
        assert terminal.is_as_before()
        assert "Traceback" not in terminal.output


def test_a_frame_knows_its_age() -> None:
    frame = Frame(
        database="x",
        at=from_us(0),
        lines=[],
        parked=0,
        workers=0,
        slots=3,
        memory_bytes=84 * 2**20,
        rate=None,
        minutes=[],
        failed_ratio=0,
        alerts=[],
        failures=[],
        age=12.0,
    )
    from rich.console import Console

    from duly.cli.top_frame import draw

    console = Console(width=80, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(draw(frame, width=80, height=24, sort="waiting"))
    text = console.export_text()
    assert "12 s old" in text
    assert "0 workers, 3 slots, 84 MB" in text
    console.file.close()
