"""`duly worker` as a real process: signals, `--until-empty`, recycling, several processes."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from duly import Duly, State
from duly.domain.errors import DatabaseUnavailable
from tests.cli.conftest import Project
from tests.helpers import eventually, opened

READY = "Stop it with Ctrl-C"


def started_naps(marker: Path) -> bool:
    return marker.exists() and "started" in marker.read_text()


def test_the_collector_does_not_walk_what_the_application_is_made_of(
    sqlite_project: Project, sqlite_jobs: Duly
) -> None:
    sqlite_project.write(
        "frozen.py",
        """
import gc
from duly import Duly
jobs = Duly()
many = [[] for _ in range(10_000)]

@jobs.task
def walked() -> list[int]:
    return [gc.get_freeze_count(), len(gc.get_objects())]
""",
    )
    sqlite_project.ok("enqueue", "frozen.py", "walked")
    assert sqlite_project.start("worker", "frozen.py", "--until-empty").ends() == 0
    (job,) = sqlite_jobs.list()
    frozen, walked = job.result()
    assert frozen > 10_000 > walked


# -- what it says -----------------------------------------------------------------------------------------------------


def test_the_banner_says_what_it_works_on_without_the_password(sqlite_project: Project, sqlite_jobs: Duly) -> None:
    worker = sqlite_project.start("worker", "app.py", "--queue", "mail=5,default*3", "--threads", "4", "--until-empty")
    assert worker.ends() == 0
    text = worker.output
    assert "mail (5 slots), default (weight 3)" in text
    assert "tasks     add, nap, patient, pid, send" in text
    assert "slots     4 thread" in text
    assert "stopped after 0 runs" in text


def test_with_json_every_line_is_an_object(sqlite_project: Project) -> None:
    sqlite_project.ok("enqueue", "app.py", "send", "to=me\x1b[2J")
    worker = sqlite_project.start("worker", "app.py", "--json", "--until-empty", "--verbose")
    assert worker.ends() == 0
    lines = [json.loads(line) for line in worker.output.splitlines()]
    assert lines[0]["event"] == "started"
    assert lines[0]["tasks"] == ["add", "nap", "patient", "pid", "send"]
    assert any("run 2 of 2 failed" in line.get("message", "") for line in lines)


def test_what_fails_is_logged_in_a_line_that_cannot_be_forged(sqlite_project: Project) -> None:
    sqlite_project.ok("enqueue", "app.py", "send", "--args", '{"to": "me\\n12:00:00 all is well\\u001b[2J"}')
    worker = sqlite_project.start("worker", "app.py", "--until-empty")
    assert worker.ends() == 0
    assert "ValueError: no such address: me\n    12:00:00 all is well\\x1b[2J" in worker.output
    assert "run 1 of 2 failed" in worker.output
    assert "again in" in worker.output
    assert "not again" in worker.output
    assert "\x1b" not in worker.output


def test_verbose_says_when_runs_start_and_end(sqlite_project: Project) -> None:
    sqlite_project.ok("enqueue", "app.py", "add", "x=1")
    worker = sqlite_project.start("worker", "app.py", "--verbose", "--until-empty")
    assert worker.ends() == 0
    assert " started\n" in worker.output
    assert " done in " in worker.output


def test_an_app_without_tasks_is_told(sqlite_project: Project) -> None:
    sqlite_project.write("none.py", "from duly import Duly\njobs = Duly()\n")
    worker = sqlite_project.start("worker", "none.py", "--until-empty")
    assert worker.ends() == 0
    assert "declares no task" in worker.output


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_database_that_cannot_be_reached_is_exit_code_3(bare: Project, processes: str) -> None:
    bare.write("app.py", "from duly import Duly\njobs = Duly('postgresql://me:secret@127.0.0.1:1/none')\n")
    bare.url = "sqlite:///unused.db"
    if processes == "1":
        worker = bare.start("worker", "app.py")
        assert worker.ends() == 3
        assert "duly: cannot connect to postgresql://me:***@127.0.0.1:1/none" in worker.output
    else:  # a supervisor goes on trying
        worker = bare.start("worker", "app.py", "--processes", processes)
        worker.says("ended with exit code 3")
        worker.signal()
        assert worker.ends() == 0
    assert "secret" not in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.requirement("C11")
def test_settings_of_the_environment_reach_the_worker(
    sqlite_project: Project, sqlite_jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    from duly.app import Duly as App
    from duly.cli.worker import _settings

    monkeypatch.setenv("DULY_GRACE", "3s")
    monkeypatch.setenv("DULY_LEASE", "7s")
    given = dict.fromkeys(("threads", "async_slots", "process_slots", "lease", "grace", "max_jobs"))
    app = App()
    assert (_settings(app, None, given).grace, _settings(app, None, given).lease) == (3.0, 7.0)
    app.close()


# -- until empty ------------------------------------------------------------------------------------------------------


def test_until_empty_runs_everything_that_is_there_also_what_is_due_later(project: Project, jobs: Duly) -> None:
    for n in range(20):
        project.ok("enqueue", "app.py", "add", f"x={n}")
    project.ok("enqueue", "app.py", "add", "x=99", "--delay", "700ms")
    project.ok("enqueue", "app.py", "send", "to=me")
    worker = project.start("worker", "app.py", "--until-empty")
    assert worker.ends() == 0
    assert {job.state for job in jobs.list(task="add")} == {State.SUCCEEDED}
    assert [job.state for job in jobs.list(task="send")] == [State.FAILED]
    assert "stopped after 23 runs" in worker.output


def test_until_empty_runs_what_recurs_and_is_due_and_does_not_wait_for_the_rest(project: Project, jobs: Duly) -> None:
    project.ok("schedules", "add", "app.py", "add", "x=1", "--every", "1h")
    project.ok("schedules", "add", "app.py", "pid", "--rule", "@yearly")
    assert project.start("worker", "app.py", "--until-empty").ends() == 0
    assert [len(job.runs()) for job in jobs.recurring_jobs()] == [1, 0]


def test_until_empty_looks_only_at_its_queues(sqlite_project: Project) -> None:
    sqlite_project.ok("enqueue", "app.py", "add", "x=1", "--queue", "other")
    worker = sqlite_project.start("worker", "app.py", "--until-empty", "--queue", "default")
    assert worker.ends() == 0


def test_a_task_that_nobody_knows_stays_queued_and_is_named(project: Project, jobs: Duly) -> None:
    project.ok("enqueue", "resize", "--url", project.url)
    project.ok("enqueue", "app.py", "add", "x=1")
    worker = project.start("worker", "app.py", "--until-empty")
    assert worker.ends() == 1
    assert "no live worker knows 1 task: resize" in worker.output
    assert [job.state for job in jobs.list(task="resize")] == [State.QUEUED]
    assert [job.state for job in jobs.list(task="add")] == [State.SUCCEEDED]


# -- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_jobs_end_and_takes_no_new_ones(
    project: Project, jobs: Duly, tmp_path: Path, number: signal.Signals
) -> None:
    marker = tmp_path / "marker"
    worker = project.start("worker", "app.py", "--threads", "1")
    worker.says(READY)
    project.ok("enqueue", "app.py", "nap", "seconds=1", f"started={marker}")
    eventually(lambda: started_naps(marker), 20)
    project.ok("enqueue", "app.py", "add", "x=1")
    worker.signal(number)
    assert worker.ends() == 0
    assert marker.read_text() == "started\nended\n"
    assert [job.state for job in jobs.list(task="nap")] == [State.SUCCEEDED]
    assert [job.state for job in jobs.list(task="add")] == [State.QUEUED]
    assert jobs.workers() == []
    assert "stopping: 1 running job may take up to 25s more" in worker.output


def test_after_the_grace_what_runs_is_given_back_unharmed(
    sqlite_project: Project, sqlite_jobs: Duly, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    worker = sqlite_project.start("worker", "app.py", "--grace", "300ms")
    worker.says(READY)
    sqlite_project.ok("enqueue", "app.py", "nap", "seconds=60", f"started={marker}")
    eventually(lambda: started_naps(marker), 20)
    worker.signal()
    assert worker.ends(15) == 0
    [job] = sqlite_jobs.list(task="nap")
    assert (job.state, job.attempts) == (State.QUEUED, 0)


def test_a_second_signal_stops_at_once(sqlite_project: Project, sqlite_jobs: Duly, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    worker = sqlite_project.start("worker", "app.py", "--grace", "10m")
    worker.says(READY)
    sqlite_project.ok("enqueue", "app.py", "nap", "seconds=60", f"started={marker}")
    eventually(lambda: started_naps(marker), 20)
    worker.signal()
    worker.says("a second signal stops at once")
    worker.signal()  # the echo of the first, as systemd and `timeout` make it
    time.sleep(0.7)
    assert worker.process.poll() is None
    worker.signal()
    assert worker.ends(15) == 0
    [job] = sqlite_jobs.list(task="nap")
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    assert sqlite_jobs.workers() == []


def test_a_third_signal_leaves(sqlite_project: Project, tmp_path: Path) -> None:
    sqlite_project.write(
        "stubborn.py",
        "import time\nfrom duly import Duly\njobs = Duly()\n"
        "@jobs.on_stop\ndef never():\n    print('never', flush=True)\n"
        "    time.sleep(60)\n@jobs.task\ndef add(): ...\n",
    )
    worker = sqlite_project.start("worker", "stubborn.py")
    worker.says(READY)
    time.sleep(0.5)
    worker.signal(signal.SIGINT)
    worker.says("never")
    worker.signal(signal.SIGINT)
    time.sleep(0.2)
    worker.signal(signal.SIGINT)
    assert worker.ends(5) == 130


# -- several, and fresh ones ------------------------------------------------------------------------------------------


def test_after_so_many_jobs_a_fresh_process_goes_on(sqlite_project: Project, sqlite_jobs: Duly) -> None:
    for n in range(5):
        sqlite_project.ok("enqueue", "app.py", "add", f"x={n}")
    worker = sqlite_project.start("worker", "app.py", "--max-jobs", "2")
    eventually(lambda: len(sqlite_jobs.list(state="succeeded")) == 5, 30, 0.05)
    worker.says(READY, times=3)
    worker.signal()
    assert worker.ends() == 0
    assert {len([run for job in sqlite_jobs.list() for run in job.runs])} == {5}


def test_above_so_much_memory_a_fresh_process_goes_on(sqlite_project: Project) -> None:
    sqlite_project.write(
        "hungry.py",
        "from duly import Duly\njobs = Duly()\nkept = []\n"
        "@jobs.task\ndef eat() -> None:\n    kept.append(b'x' * 200_000_000)\n",
    )
    worker = sqlite_project.start("worker", "hungry.py", "--max-memory", "150")
    worker.says(READY)
    sqlite_project.ok("enqueue", "hungry.py", "eat")
    worker.says("of memory used")
    worker.says(READY, times=2)
    worker.signal()
    assert worker.ends() == 0


def test_several_processes_share_the_work_and_stop_together(sqlite_project: Project, sqlite_jobs: Duly) -> None:
    worker = sqlite_project.start("worker", "app.py", "--processes", "2")
    eventually(lambda: len(sqlite_jobs.live_workers()) == 2, 30, 0.05)
    for _ in range(4):
        sqlite_project.ok("enqueue", "app.py", "pid")
    eventually(lambda: len(sqlite_jobs.list(state="succeeded")) == 4, 20, 0.05)
    worker.signal()
    assert worker.ends() == 0
    assert sqlite_jobs.workers() == []


def test_a_process_that_is_killed_is_replaced_and_its_job_runs_again(
    project: Project, jobs: Duly, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    worker = project.start("worker", "app.py", "--processes", "2")
    eventually(lambda: len(jobs.live_workers()) == 2, 30, 0.05)
    project.ok("enqueue", "app.py", "nap", "seconds=1", f"started={marker}")
    eventually(lambda: started_naps(marker), 20)
    holder = jobs.list(task="nap")[0].record.worker_id
    [victim] = [each.process.pid for each in jobs.workers() if each.id == holder]
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    eventually(lambda: marker.read_text().count("started") == 2, 10)
    assert time.monotonic() - killed < 3
    eventually(lambda: jobs.list(task="nap")[0].state is State.SUCCEEDED, 10)
    eventually(lambda: len(jobs.live_workers()) == 2, 20, 0.05)
    worker.signal()
    assert worker.ends() == 0


def test_several_processes_end_when_all_is_empty(sqlite_project: Project, sqlite_jobs: Duly) -> None:
    for n in range(10):
        sqlite_project.ok("enqueue", "app.py", "add", f"x={n}")
    worker = sqlite_project.start("worker", "app.py", "--processes", "2", "--until-empty")
    assert worker.ends() == 0
    assert len(sqlite_jobs.list(state="succeeded")) == 10


def test_a_worker_ends_with_the_process_that_started_it(sqlite_project: Project) -> None:
    worker = sqlite_project.start("worker", "app.py", "--processes", "2")
    with opened(sqlite_project.url) as jobs:
        eventually(lambda: len(jobs.live_workers()) == 2, 30, 0.05)
        pids = [each.process.pid for each in jobs.workers()]
        worker.process.kill()
        eventually(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids), 30, 0.05)


def test_an_outage_at_the_look_for_more_is_no_end(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from duly.cli.running import Emptiness

    with opened(sqlite_project.url) as jobs:
        emptiness = Emptiness(jobs, ["default"])

        def away(queue: str) -> bool:
            raise DatabaseUnavailable("gone for a while")

        monkeypatch.setattr(jobs.store, "anything_left", away)
        assert emptiness.look() is None
        monkeypatch.undo()
        emptiness = Emptiness(jobs, ["default"])
        assert emptiness.look() == "empty"
