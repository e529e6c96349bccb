"""`duly dev`: the code is loaded again when it changes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from duly import Duly
from duly.cli.worker import example_of
from tests.cli.conftest import Project
from tests.helpers import eventually, opened

FIRST = """
import greetings
from duly import Duly

jobs = Duly()

@jobs.task
def greet(name: str, times: int = 1) -> str:
    return greetings.WORD + " " + name

if __name__ == "__main__":
    raise SystemExit("main was run")
"""


def results(jobs: Duly) -> list[object]:
    return [json.loads(run.result) for run in jobs.store.recent_runs() if run.result is not None]


def test_changed_code_is_used_and_a_broken_file_is_waited_for(project: Project, jobs: Duly) -> None:
    project.write("app.py", FIRST)
    project.write("greetings.py", "WORD = 'hello'\n")
    dev = project.start("dev", "app.py")
    dev.says("duly enqueue app.py greet name=hello")
    project.ok("enqueue", "greet", "name=ann", "--url", project.url)
    eventually(lambda: results(jobs) == ["hello ann"], 20, 0.05)

    project.write("greetings.py", "WORD = 'good evening'\n")
    dev.says("greetings.py changed; starting again")
    project.ok("enqueue", "greet", "name=bob", "--url", project.url)
    eventually(lambda: "good evening bob" in results(jobs), 20, 0.05)

    project.write("greetings.py", "WORD = 'never\n")
    dev.says("SyntaxError")
    dev.says("waiting for a file to change")

    project.write("greetings.py", "WORD = 'welcome back'\n")
    project.ok("enqueue", "greet", "name=cat", "--url", project.url)
    eventually(lambda: "welcome back cat" in results(jobs), 20, 0.05)
    assert dev.output.count("duly enqueue app.py greet") == 1
    assert " done in " in dev.output

    dev.signal(signal.SIGINT)
    assert dev.ends() == 0
    assert jobs.workers() == []


def test_the_database_is_made_on_the_spot(empty_database_url: str, bare: Project) -> None:
    bare.url = empty_database_url
    bare.write("app.py", FIRST)
    bare.write("greetings.py", "WORD = 'hello'\n")
    dev = bare.start("dev", "app.py")
    dev.says("Give it something to do")
    with opened(empty_database_url) as jobs:
        eventually(lambda: len(jobs.live_workers()) == 1, 20, 0.05)
    dev.signal()
    assert dev.ends() == 0


def test_a_worker_that_is_killed_is_started_again(sqlite_project: Project) -> None:
    dev = sqlite_project.start("dev", "app.py")
    with opened(sqlite_project.url) as jobs:
        eventually(lambda: len(jobs.live_workers()) == 1, 20, 0.05)
        [first] = [each.process.pid for each in jobs.live_workers()]
        os.kill(first, signal.SIGKILL)
        dev.says("killed by SIGKILL; starting another")
        eventually(lambda: [each for each in jobs.live_workers() if each.process.pid != first], 20, 0.05)
        [second] = [each.process.pid for each in jobs.live_workers() if each.process.pid != first]
        dev.process.kill()
        eventually(lambda: not Path(f"/proc/{second}/cmdline").exists(), 30, 0.05)


def test_ctrl_c_in_a_terminal_is_one_signal_for_all(sqlite_project: Project) -> None:
    dev = sqlite_project.start("dev", "app.py", "--grace", "20s")
    with opened(sqlite_project.url) as jobs:
        eventually(lambda: len(jobs.live_workers()) == 1, 20, 0.05)
        sqlite_project.ok("enqueue", "app.py", "nap", "seconds=1")
        eventually(lambda: jobs.list(state="running"), 10)
        os.killpg(dev.process.pid, signal.SIGINT)
        assert dev.ends() == 0
        assert [job.state for job in jobs.list()] == ["succeeded"]
    assert "KeyboardInterrupt" not in dev.output


def test_files_named_like_modules_of_python_do_no_harm(sqlite_project: Project) -> None:
    for name in ("queue", "signal", "json", "duly"):
        sqlite_project.write(f"{name}.py", "raise RuntimeError('not me')")
    dev = sqlite_project.start_isolated("dev", "app.py")
    dev.says("Give it something to do")
    dev.signal()
    assert dev.ends() == 0


def test_with_json_every_line_is_an_object(sqlite_project: Project) -> None:
    dev = sqlite_project.start("dev", "app.py", "--json")
    dev.says('"hint"')
    sqlite_project.write("other.py", "")
    dev.says('"changed"')
    dev.signal()
    assert dev.ends() == 0
    events = [json.loads(line)["event"] for line in dev.output.splitlines()]
    assert events[0] == "started"
    assert "changed" in events


def test_without_a_file_it_asks_for_one(bare: Project) -> None:
    answer = bare.duly("dev")
    assert answer.code == 2
    assert "FILE_OR_MODULE" in answer.err


def test_a_file_that_is_not_there_yet_is_waited_for(sqlite_project: Project) -> None:
    dev = sqlite_project.start("dev", "later.py")
    dev.says("there is no file later.py")
    dev.says("waiting for a file to change")
    sqlite_project.write("later.py", "from duly import Duly\njobs = Duly()\n@jobs.task\ndef soon() -> None: ...\n")
    dev.says("duly enqueue later.py soon")
    dev.signal()
    assert dev.ends() == 0


@pytest.mark.parametrize(
    "kind, example",
    [
        ("int", "1"),
        ("str", "hello"),
        ("list[int]", "'[]'"),
        ("dict[str, int]", "'{}'"),
        ("int | None", "1"),
        ("X", '"..."'),
    ],
)
def test_examples_are_of_the_right_kind(kind: str, example: str) -> None:
    assert example_of(kind) == example
