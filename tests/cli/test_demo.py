"""`python -m duly.demo`: everything ends as it should, it cleans up, and its pictures can be drawn."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from duly import Duly
from duly.demo_view import Events, PlainScreen, RichScreen, bar, rows_of
from tests.helpers import ROOT, opened


def run_demo(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    return subprocess.run(
        [sys.executable, "-m", "duly.demo"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.deep
def test_the_demo_ends_as_it_should_within_half_a_minute(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = run_demo(tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert time.monotonic() - begun < 30
    assert "48 jobs: 45 succeeded, 2 cancelled, 1 failed" in done.stdout
    assert "One job killed its worker process (SIGKILL). It ran again" in done.stdout
    assert "5,000 of 5,000" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shown(sqlite_url: str) -> Any:
    with opened(sqlite_url) as jobs:
        yield jobs


def some_jobs(jobs: Duly) -> None:
    @jobs.task
    def greet(name: str) -> None: ...

    @jobs.task
    def report(title: str) -> None:
        raise ValueError("no")

    greet.enqueue_many([{"name": "a"}, {"name": "b"}])
    report.using(max_attempts=1).enqueue("sales\x1b[2J")
    report.using(delay=60).enqueue("later")
    jobs.tick()


def test_its_rows_are_clean_and_crowds_are_one_row(shown: Duly) -> None:
    some_jobs(shown)
    rows = rows_of(shown.list())
    assert ("report(sales\\x1b[2J)", "failed", "1/1", "attempts used up (1 of 1)") in rows
    assert ("report(later)", "scheduled", "", "later") in rows
    assert ("greet x 2", "succeeded", "", bar(1) + " 2/2") in rows


def test_without_a_terminal_each_event_is_a_line(shown: Duly, capsys: pytest.CaptureFixture[str]) -> None:
    some_jobs(shown)
    view = Events()
    view.show(shown.list(), [], 1.0)
    view.show(shown.list(), [], 2.0)
    view.show_burst(0, 10, 0.0)
    view.show_burst(5, 10, 0.5)
    view.show_burst(10, 10, 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert sum("report(later)" in line for line in lines) == 1
    assert [line.split("s  ")[1] for line in lines[-2:]] == ["burst: 0 of 10", "burst: 10 of 10"]


def test_a_plain_terminal_is_drawn_over(shown: Duly) -> None:
    some_jobs(shown)
    out = io.StringIO()
    with PlainScreen(out) as view:
        view.show(shown.list(), [], 1.0)
        view.show(shown.list(), [], 2.0)
        view.show_burst(5, 10, 0.5)
    text = out.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert re.search(r"\x1b\[\d+A\r", text)
    assert "\x1b[2J" not in text


def test_rich_draws_it_where_it_is_installed(shown: Duly, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    some_jobs(shown)
    with RichScreen() as view:
        view.show(shown.list(), [], 1.0)
        view.show_burst(10, 10, 0.5)
    text = capsys.readouterr().out
    assert "report(later)" in text
    assert "burst of 10" in text
