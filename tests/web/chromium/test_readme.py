"""The README's way from `pip install` to a first job seen done in the browser: taken from its text, and gone."""

from __future__ import annotations

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT, eventually

MOST_COMMANDS, MOST_LINES = 2, 6


class Way:
    """What the README says to do, in its own words: everything before its first heading below the title."""

    def __init__(self) -> None:
        beginning = (ROOT / "README.md").read_text().partition("\n## ")[0]
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", beginning, re.M | re.S)
        self.shell = [line for kind, text in blocks if not kind for line in text.splitlines()]
        self.code: str = next(text for kind, text in blocks if kind == "python")
        self.deeds = re.findall(r"\*([A-Z][^*]+)\*", beginning)
        """What to press, in this order."""

    @property
    def commands(self) -> list[list[str]]:
        return [shlex.split(line, comments=True) for line in self.shell]

    @property
    def lines(self) -> list[str]:
        """Lines of code: neither empty nor a comment."""
        return [line for line in self.code.splitlines() if line.strip() and not line.strip().startswith("#")]

    @property
    def file(self) -> str:
        """The name of the file, which its first line says."""
        return self.code.splitlines()[0].removeprefix("# ")


@pytest.fixture
def way() -> Way:
    return Way()


@pytest.fixture
def project(tmp_path: Path, way: Way) -> dict[str, str]:
    """A folder with the file of the README, and an environment in which `duly` is installed."""
    (tmp_path / way.file).write_text(way.code)
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "duly"  # as pip would make it, of the code at hand
    program.write_text(f"#!{sys.executable}\nfrom duly.cli import main\nmain()\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    path = f"{programs}{os.pathsep}{environment['PATH']}"
    return environment | {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}


def test_it_takes_two_commands_and_at_most_six_lines(way: Way) -> None:
    install, serve, *more = way.commands
    assert install[:2] == ["pip", "install"]
    assert serve == ["duly", "dev", way.file]
    assert len([install, serve]) == MOST_COMMANDS
    assert more == [["duly", "enqueue", way.file, "add", "x=1", "y=2", "--wait"]]  # another way, not needed
    assert len(way.lines) <= MOST_LINES
    assert way.deeds == ["Jobs", "New job", "Enqueue"]


def test_what_it_installs_is_what_the_dashboard_needs(way: Way) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.fullmatch(r"(\w+)\[(\w+)\]", way.commands[0][2])
    assert named is not None
    assert named[1] == project["name"]
    needed = {re.split(r"[><=\[]", each)[0] for each in project["optional-dependencies"][named[2]]}
    assert {"starlette", "uvicorn", "jinja2"} <= needed


def test_the_first_job_is_seen_done_in_the_browser(
    way: Way, project: dict[str, str], tmp_path: Path, tab_of: Any
) -> None:
    output = tmp_path / "output"
    _, serve, enqueue = way.shell
    with output.open("wb") as out:  # in a shell, as it is printed
        dev = subprocess.Popen(serve, shell=True, cwd=tmp_path, env=project, stdout=out, stderr=out, process_group=0)
    try:
        [link] = eventually(lambda: re.findall(r"http://\S+/open\?key=\S+", output.read_text()), 30, 0.05)
        tab = tab_of(link.partition("/open")[0])
        eventually(lambda: "Give it something to do" in output.read_text(), 30, 0.05)
        tab.page.goto(link)
        jobs, new, press = way.deeds
        tab.click(jobs, role="link")
        tab.click(new, role="link")
        tab.page.get_by_label("Task").select_option("add")
        tab.click(press)
        tab.says("Stored.")
        tab.page.locator("h1 .badge.succeeded").wait_for(timeout=20_000)
        assert tab.page.locator("pre[aria-label=Result]").inner_text() == "2"
        said = subprocess.run(
            enqueue, shell=True, cwd=tmp_path, env=project, capture_output=True, text=True, timeout=60
        )
        assert said.returncode == 0, said.stderr
        assert said.stdout.strip().endswith("3")
        tab.open("/jobs?state=succeeded")
        assert tab.page.locator("#rows tbody tr").count() == 2
        tab.check()
    finally:
        os.killpg(dev.pid, signal.SIGINT)
        dev.wait(30)
