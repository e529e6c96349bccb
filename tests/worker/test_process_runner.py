"""Tasks with `isolation="process"`: real child processes, stopped, killed and crashed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from duly import Backoff, ConfigurationError, Duly, Job, JobCancelled, JobFailed, State
from duly.domain.ids import uuid7
from duly.domain.records import NewJob
from duly.worker.identity import started_at
from duly.worker.worker import Worker
from tests.helpers import ROOT, Ledger, eventually, opened
from tests.worker import process_app
from tests.worker.process_app import Money

FAR = 20.0


def knowing(jobs: Duly) -> Duly:
    """Teach a `Duly` the tasks of `process_app`, which children find there."""
    for task in process_app.jobs.registry:
        jobs.registry.add(task)
    return jobs


@pytest.fixture
def app(sqlite_url: str) -> Iterator[Duly]:
    """A `Duly` on SQLite that knows the tasks of `process_app`."""
    with opened(sqlite_url) as jobs:
        yield knowing(jobs)


@contextmanager
def working(jobs: Duly, **options: Any) -> Iterator[Worker]:
    with jobs.worker(**{"process_slots": 1, "poll": 1.0, **options}) as worker:
        yield worker


def is_gone(pid: int) -> bool:
    return started_at(pid) is None


def start_of(ledger: Ledger, within: float = FAR) -> int:
    """Wait until a handler has started; returns the pid of its process."""
    return eventually(lambda: ledger.entries("start"), within)[-1].pid


def failure(job: Job[Any]) -> str:
    with pytest.raises(JobFailed) as failed:
        job.wait(FAR)
    return str(failed.value)


# -- what a handler sees and leaves ---------------------------------------------------------------------------------


def test_a_handler_runs_in_a_child_that_is_reused(jobs: Duly) -> None:
    knowing(jobs)
    with working(jobs, process_slots=2):
        job = jobs["whoami"].using(tenant="acme").enqueue()
        seen = job.wait(FAR)
        again = jobs["whoami"].enqueue().wait(FAR)
        third = jobs["awhoami"].enqueue().wait(FAR)
    assert seen["pid"] != os.getpid()
    assert again["pid"] == third == seen["pid"]
    assert is_gone(seen["pid"])
    assert seen == {
        "pid": seen["pid"],
        "main": True,
        "id": job.id,
        "attempt": 1,
        "fence": 1,
        "tenant": "acme",
        "task": "whoami",
        "cancelled": False,
        "started": True,
    }


def test_a_coroutine_sees_its_own_run_and_nothing_of_those_before_it_in_its_child(app: Duly) -> None:
    with working(app):
        first, second = app["alook"].enqueue(), app["alook"].enqueue()
        (pid, *one), (again, *two) = first.wait(FAR), second.wait(FAR)
    assert pid == again
    assert (one, two) == ([first.id, "nothing"], [second.id, "nothing"])


def test_what_a_coroutine_left_behind_when_it_failed_does_not_go_on_in_the_next_run(app: Duly, ledger: Ledger) -> None:
    with working(app):
        failed = app["leave_beside"].enqueue(ledger=str(ledger.path))
        assert "SystemExit" in failure(failed)
        assert ledger.count("left", name=failed.id) == 1
        assert app["alook"].enqueue().wait(FAR)[2] == "nothing"
    assert [entry.name for entry in ledger.entries("left")] == [failed.id]


def test_arguments_and_results_keep_their_types_across_processes(app: Duly) -> None:
    with working(app):
        paid = app["pay"].enqueue(money=Money(Decimal("1.10"), "EUR"), by=uuid4(), at=datetime.now(UTC)).wait(FAR)
        large = app["big"].enqueue(n=120_000).wait(FAR)
    assert paid == Money(Decimal("2.10"), "EUR")
    assert large == "ü" * 120_000


def test_arguments_that_do_not_fit_park_the_job(app: Duly) -> None:
    with working(app):
        stored = NewJob(id=uuid7(), task="big", args='{"m": 1}')
        app.store.enqueue(stored)
        eventually(lambda: app.get(stored.id).record.detail, FAR)
        job = app.get(stored.id)
    assert job.state == State.QUEUED
    assert "argument m: unknown name" in str(job.record.detail)
    assert job.record.attempt == 0


def test_steering_exceptions_cross_the_pipe(app: Duly, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> None:
    monkeypatch.setenv("PROCESS_LEDGER", str(ledger.path))
    with working(app, process_slots=2):
        job = {how: app["steer"].enqueue(how=how) for how in ("snooze", "cancel", "retry", "fatal", "bad")}
        assert job["snooze"].wait(FAR) == "after a snooze"
        assert job["retry"].wait(FAR) == "second run"
        assert job["bad"].wait(FAR) == "second run"
        with pytest.raises(JobCancelled, match="not needed"):
            job["cancel"].wait(FAR)
        assert "Fatal: no use" in failure(job["fatal"])
    outcomes = {how: [run.outcome for run in each.refresh().runs] for how, each in job.items()}
    assert outcomes == {
        "snooze": ["snoozed", "succeeded"],
        "cancel": ["cancelled"],
        "retry": ["failed", "succeeded"],
        "fatal": ["failed"],
        "bad": ["failed", "succeeded"],
    }
    run = job["bad"].runs[0]
    assert (run.error_kind, run.error) == ("ValueError", "bad bad")
    assert 'raise ValueError(f"bad {how}")' in (run.traceback or "")
    assert job["fatal"].record.reason == "Fatal is in give_up_on"
    assert [(entry.name, entry.event) for entry in ledger.entries()] == [("Fatal", "no use")]


@pytest.mark.requirement("E7")
def test_neither_system_exit_nor_a_crash_ends_the_worker(
    app: Duly, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    monkeypatch.setenv("PROCESS_LEDGER", str(ledger.path))
    with working(app, process_slots=2):
        left, dead = app["steer"].enqueue(how="exit"), app["die"].enqueue(how="exit")
        assert left.wait(FAR) == "second run"
        failure(dead)
        assert app["awhoami"].enqueue().wait(FAR) != os.getpid()
    assert left.runs[0].error_kind == "SystemExit"
    assert [run.error for run in dead.runs] == ["The child process exited with code 3."] * 3


def test_progress_and_log_lines_cross_the_pipe(
    app: Duly, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PROCESS_GO", str(tmp_path / "go"))
    with working(app):
        job = app["talk"].enqueue()
        eventually(lambda: job.refresh().record.progress_text == "half way", FAR)
        assert job.record.progress == 0.5
        (tmp_path / "go").touch()
        job.wait(FAR)
    lines = job.refresh().runs[0].log
    assert lines[0] == f"before {job.id}"
    assert lines[1].endswith("WARNING handler: one line")
    assert "ValueError: inside" in lines
    assert any(line.endswith("ERROR handler: from a thread") for line in lines)
    assert lines[-1] == "after"
    assert "one line" in caplog.messages, "it is shown as the worker's own lines are"


# -- handlers that hold on ------------------------------------------------------------------------------------------


@pytest.mark.requirement("D5")
def test_a_handler_that_holds_the_gil_is_not_robbed_and_others_run(jobs: Duly, ledger: Ledger) -> None:
    knowing(jobs)
    note = jobs.task(name="note")(lambda: "noted")
    with working(jobs, process_slots=2, lease=0.6):
        held = jobs["hold_gil"].enqueue(name="held", ledger=str(ledger.path), seconds=2)
        start_of(ledger)
        assert note.enqueue().wait(1.5) == "noted"
        jobs["whoami"].enqueue().wait(FAR)
        held.wait(FAR)
    assert [entry.event for entry in ledger.entries(name="held")] == ["start", "end"]
    assert [run.outcome for run in held.refresh().runs] == ["succeeded"]


def test_a_timeout_interrupts_and_then_kills(app: Duly, ledger: Ledger) -> None:
    with working(app, process_slots=3):
        soft = app["overdue"].enqueue(ledger=str(ledger.path), stubborn=False)
        hard = app["overdue"].enqueue(ledger=str(ledger.path), stubborn=True)
        other = app["aoverdue"].enqueue(ledger=str(ledger.path))
        assert all("timed out after 300ms" in failure(each) for each in (soft, hard, other))
        pids = {entry.pid for entry in ledger.entries()}
        assert app["awhoami"].enqueue().wait(FAR) not in pids, "a child that was interrupted is not used again"
    assert sorted(entry.name for entry in ledger.entries("cleaned up")) == ["aoverdue", "overdue"]
    assert [run.error_kind for each in (soft, hard, other) for run in each.refresh().runs] == ["TimeoutError"] * 3
    assert hard.runs[0].duration.total_seconds() < 5
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize(
    "how, told",
    [("look", ["start", "looked"]), ("interrupted", ["start", "interrupted"])],
)
def test_a_cancelled_handler_may_notice(app: Duly, ledger: Ledger, how: str, told: list[str]) -> None:
    with working(app):
        job = app["heed"].enqueue(ledger=str(ledger.path), how=how)
        start_of(ledger)
        app.cancel(job.id, reason="enough")
        with pytest.raises(JobCancelled, match="enough"):
            job.wait(FAR)
    assert [entry.event for entry in ledger.entries()] == told


def test_a_cancelled_handler_that_does_not_notice_is_killed_within_a_second(jobs: Duly, ledger: Ledger) -> None:
    knowing(jobs)
    with working(jobs):
        job = jobs["heed"].enqueue(ledger=str(ledger.path), how="never")
        pid = start_of(ledger)
        asked = time.monotonic()
        jobs.cancel(job.id, reason="enough")
        eventually(lambda: is_gone(pid), 2.0)
        assert time.monotonic() - asked < 1.0
        with pytest.raises(JobCancelled, match="enough"):
            job.wait(FAR)
        assert jobs["awhoami"].enqueue().wait(FAR) != pid
    assert ledger.count("was not killed") == 0


def test_a_lost_lease_kills_the_child_and_its_slot_goes_on(app: Duly, ledger: Ledger) -> None:
    with working(app, lease=0.6):
        job = app["hold"].enqueue(name="a", ledger=str(ledger.path), seconds=30)
        pid = start_of(ledger)
        app.store.give_back([(job.id, job.refresh().record.token)])
        eventually(lambda: is_gone(pid), 3.0)
        second = eventually(lambda: ledger.entries("start")[1:], FAR)[0].pid
        assert second != pid
        app.cancel(job.id)
        with pytest.raises(JobCancelled):
            job.wait(FAR)
    assert ledger.count("end") == 0


def test_signals_from_elsewhere_do_not_disturb_a_handler(app: Duly, ledger: Ledger) -> None:
    with working(app):
        job = app["hold"].enqueue(name="a", ledger=str(ledger.path), seconds=0.5)
        pid = start_of(ledger)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        job.wait(FAR)
    assert [run.outcome for run in job.refresh().runs] == ["succeeded"]


def test_stopping_the_worker_releases_what_still_runs(app: Duly, ledger: Ledger) -> None:
    with working(app, grace=0.1):
        job = app["hold"].enqueue(name="a", ledger=str(ledger.path), seconds=30)
        pid = start_of(ledger)
    assert is_gone(pid)
    assert job.refresh().state == State.QUEUED
    assert job.record.attempt == 0


# -- children that die ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how, text",
    [
        ("kill", "The child process was killed by SIGKILL (out of memory?)."),
        ("segfault", "The child process was killed by SIGSEGV."),
    ],
)
def test_a_child_that_dies_three_times_is_poison_and_the_worker_lives(
    app: Duly, monkeypatch: pytest.MonkeyPatch, ledger: Ledger, how: str, text: str
) -> None:
    monkeypatch.setenv("PROCESS_LEDGER", str(ledger.path))
    with working(app):
        job = app["die"].enqueue(how=how)
        failure(job)
        assert app["awhoami"].enqueue().wait(FAR) != os.getpid()
    assert str(job.refresh().record.reason).startswith("poison: 3 runs in a row ended their process")
    assert [(run.outcome, run.error_kind, run.error) for run in job.runs] == [("crashed", "ProcessDied", text)] * 3
    assert all(any("about to" in line for line in run.log) for run in job.runs), "the last words are kept"
    assert [entry.name for entry in ledger.entries()] == ["WorkerError"]


def test_crashes_are_forgotten_when_a_run_ends(app: Duly, tmp_path: Path) -> None:
    app.task(isolation="process", retry=process_app.soon)(die_now_and_then)
    with working(app):
        job = app["die_now_and_then"].enqueue(notes=str(tmp_path / "runs"))
        job.wait(FAR)
    assert [run.outcome for run in job.refresh().runs] == ["crashed", "crashed", "failed", "crashed", "succeeded"]


def die_now_and_then(notes: str) -> None:
    """Crash twice, fail, crash, succeed."""
    with open(notes, "a+") as file:
        file.write("x")
        file.seek(0)
        runs = len(file.read())
    if runs == 3:
        raise ValueError("only a failure")
    if runs < 5:
        os._exit(1)


def test_an_idle_child_that_dies_costs_no_attempt(app: Duly) -> None:
    with working(app):
        pid = app["awhoami"].enqueue().wait(FAR)
        os.kill(pid, signal.SIGKILL)
        job = app["awhoami"].enqueue()
        assert job.wait(FAR) != pid
    assert [run.outcome for run in job.refresh().runs] == ["succeeded"]


def test_processes_of_a_handler_keep_no_slot_and_end_with_the_child(app: Duly, ledger: Ledger) -> None:
    with working(app):
        app["have_children"].enqueue(ledger=str(ledger.path), how="run").wait(FAR)
        grandchild = int(ledger.entries("child")[0].name)
        app["awhoami"].enqueue().wait(FAR)
        assert not is_gone(grandchild)
    eventually(lambda: is_gone(grandchild), 2.0)


def test_a_forked_copy_does_not_hide_that_the_child_is_dead(app: Duly, ledger: Ledger) -> None:
    with working(app):
        begun = time.monotonic()
        job = app["have_children"].using(max_attempts=1).enqueue(ledger=str(ledger.path), how="fork")
        assert "exited with code 1" in failure(job)
    assert time.monotonic() - begun < 10


def test_a_child_that_closes_its_connection_is_replaced(app: Duly) -> None:
    with working(app):
        job = app["close_everything"].using(max_attempts=1).enqueue()
        assert "ProcessDied" in failure(job)
        app["awhoami"].enqueue().wait(FAR)


# -- where the function is ------------------------------------------------------------------------------------------


def plain(how: str) -> str:
    """Be a function that no module-level task stands for."""
    if how == "raise":
        raise LookupError("not there")
    return how


def test_a_plain_function_of_a_module_will_do(app: Duly) -> None:
    failed: list[str] = []
    retry = Backoff.fixed(0.01, max_attempts=5, give_up_on=KeyError, retry_on=LookupError)
    app.task(name="easy", isolation="process", retry=retry)(plain)
    app.task(
        name="hard",
        isolation="process",
        retry=Backoff.fixed(0.01, give_up_on=LookupError),
        on_failure=lambda job, error: failed.append(str(error)),
    )(plain)
    with working(app):
        assert app["easy"].enqueue(how="fine").wait(FAR) == "fine"
        assert "LookupError: not there" in failure(app["hard"].enqueue(how="raise"))
    assert failed == ["LookupError: not there"]


def test_a_function_that_no_child_could_find_is_refused(app: Duly) -> None:
    @app.task(isolation="process")
    def inner() -> None: ...

    with pytest.raises(ConfigurationError, match="Declare it at the top level of a module"):
        app.worker()


MAIN = """
import os, sys, time
from duly import Duly, current_job
from tests.helpers import Ledger
from pathlib import Path

jobs = Duly(sys.argv[1] if len(sys.argv) > 1 else None)
ledger = Ledger(Path(os.environ["PROCESS_LEDGER"]))

@jobs.task(isolation="process")
def hold() -> str:
    ledger.write(__name__, "start")
    if current_job().attempt == 1:
        time.sleep(60)
    return __name__

{guard}
    with jobs.worker(process_slots=1, poll=1.0):
        print("ready", flush=True)
        sys.stdin.read()
    jobs.close()
"""


@contextmanager
def script(directory: Path, url: str, ledger: Ledger, guard: str) -> Iterator[subprocess.Popen[str]]:
    """A program whose `__main__` declares the task and runs the worker."""
    file = directory / "main_program"
    file.write_text(MAIN.format(guard=guard))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PROCESS_LEDGER": str(ledger.path)}
    process = subprocess.Popen(
        [sys.executable, str(file), url],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_the_child_of_a_killed_worker_ends_within_a_second_and_the_job_runs_again(
    sqlite_url: str, tmp_path: Path, ledger: Ledger
) -> None:
    guard = 'if __name__ == "__main__":'
    with opened(sqlite_url) as jobs, script(tmp_path, sqlite_url, ledger, guard) as worker:
        job = jobs.task(name="hold")(lambda: None).enqueue()
        pid = start_of(ledger)
        with script(tmp_path, sqlite_url, ledger, guard):
            worker.kill()
            killed = time.monotonic()
            eventually(lambda: is_gone(pid), 1.0)
            assert job.wait(FAR) == "__mp_main__"
        assert ledger.entries("start")[1].at - killed < 3
        assert [run.outcome for run in job.refresh().runs] == ["crashed", "succeeded"]


def test_a_main_program_without_a_guard_fails_with_advice(sqlite_url: str, tmp_path: Path, ledger: Ledger) -> None:
    with opened(sqlite_url) as jobs, script(tmp_path, sqlite_url, ledger, "if True:"):
        task = jobs.task(name="hold")(lambda: None)
        text = failure(task.using(max_attempts=1).enqueue())
    assert 'if __name__ == "__main__":' in text
