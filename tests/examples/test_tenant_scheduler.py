"""The scheduler for many tenants as it is run: processes on one database, functions registered by command, kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from duly import WorkerError
from duly.testing import isolated
from examples.tenant_scheduler.control import ROOT, Controlled
from examples.tenant_scheduler.ledger import Ledger, LedgerRun, run_at_once, run_twice
from examples.tenant_scheduler.process import START, Process, jobs
from tests.helpers import eventually, never, opened


class Office:
    """The processes of one test, and their ledger."""

    def __init__(self, url: str, ledger: Path) -> None:
        self.url = url
        self.ledger = Ledger(ledger)
        self.processes: list[Controlled] = []

    def open(self, *names: str) -> list[Controlled]:
        """Start processes, all at once."""
        started = [Controlled(name, self.ledger.path, self.url) for name in names]
        self.processes += started
        for process in started:
            process.wait_until_up()
        return started

    def runs(self, place: str, *, by: str | None = None) -> list[LedgerRun]:
        return [run for run in self.ledger.runs() if run.place == place and by in (None, run.process)]

    def running(self, place: str) -> LedgerRun:
        """Wait until a run of a job is in its middle."""

        def found() -> list[LedgerRun]:
            now = time.monotonic()
            return [run for run in self.runs(place) if run.ended is None and now - run.began > 0.1]

        return eventually(found, within=15)[0]

    def close(self) -> None:
        for process in self.processes:
            process.let_go()
        for process in self.processes:
            process.close()


@pytest.fixture
def office(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    office = Office(database_url, tmp_path / "ledger.jsonl")
    try:
        yield office
    finally:
        office.close()


def assert_on_the_grid(runs: list[LedgerRun], every: timedelta) -> None:
    """Check that occurrences are whole intervals from the start, each later than the one before."""
    ticks = [datetime.fromisoformat(run.tick) for run in runs]
    assert all((tick - START) % every == timedelta(0) for tick in ticks), ticks
    ended = [datetime.fromisoformat(run.tick) for run in runs if run.ended is not None]
    assert ended == sorted(set(ended)), ended


@pytest.mark.requirement("E1", "E3", "E4", "E5", "E6", "E9")
def test_each_occurrence_is_run_by_one_process_that_has_the_function(office: Office) -> None:
    sharing, other = office.open("anna", "ben", "cleo"), office.open("dora")[0]
    begun = time.monotonic()  # it runs from its first registration on
    said = [
        process.say(f"register {place} 250ms work 0.05") for process in sharing for place in ("a/report", "b/report")
    ]
    assert [answer[0].split(", ")[1] for answer in said] == ["new"] * 2 + ["known already"] * 4
    assert other.say("register b/backup 250ms nap 0.05") == ["registered b/backup, new"]
    eventually(lambda: all(len(office.runs(place)) >= 12 for place in ("a/report", "b/report", "b/backup")), within=30)
    took = time.monotonic() - begun

    runs = office.ledger.runs()
    assert run_twice(runs) == []
    assert run_at_once(runs) == []
    for place in ("a/report", "b/report", "b/backup"):
        those = office.runs(place)
        assert_on_the_grid(those, timedelta(milliseconds=250))
        assert len(those) <= took / 0.25 + 3, "no oftener than its interval"
    assert {run.process for run in office.runs("b/backup")} == {"dora"}
    assert "dora" not in {run.process for run in [*office.runs("a/report"), *office.runs("b/report")]}
    assert sorted(line.split(" every ")[0] for line in other.say("jobs", lines=3)) == [
        "a/report",
        "b/backup",
        "b/report",
    ]
    with opened(office.url) as seen:
        assert [job.key for job in seen.recurring_jobs(tenant="a")] == ["report"], "a tenant sees its own"


@pytest.mark.requirement("E4", "E5")
def test_a_killed_processs_job_is_taken_over_by_one_that_registered_the_same_id(office: Office) -> None:
    anna, ben, dora = office.open("anna", "ben", "dora")
    for process in (anna, ben):
        process.say("register acme/report 1s work 0.6")
    dora.say("register acme/backup 500ms work 0.01")
    run = office.running("acme/report")
    victim, survivor = (anna, ben) if run.process == "anna" else (ben, anna)
    assert victim.kill(signal.SIGKILL) == -signal.SIGKILL
    killed = time.monotonic()

    eventually(lambda: any(each.fence > run.fence for each in office.runs("acme/report")), within=15)
    after = [each for each in office.runs("acme/report") if each.fence > run.fence]
    assert {each.process for each in after} == {survivor.name}
    assert after[0].began - killed < 5, "long before the lease of 15 s lapses: this host sees that the process is gone"
    eventually(
        lambda: sum(each.ended is not None for each in office.runs("acme/report", by=survivor.name)) > 3, within=20
    )

    runs = office.ledger.runs()
    assert [(each.process, each.fence) for each in runs if each.ended is None and each.began < killed] == [
        (victim.name, run.fence)
    ]
    assert run_twice(runs) == []
    assert run_at_once(runs) == []
    assert_on_the_grid(office.runs("acme/report"), timedelta(seconds=1))
    assert {each.process for each in office.runs("acme/backup")} == {"dora"}
    assert not office.runs("acme/report", by="dora")


@pytest.mark.requirement("E1", "E4", "E5", "E6")
def test_a_job_whose_only_process_was_killed_waits_for_one_that_has_the_function(office: Office) -> None:
    anna, dora = office.open("anna", "dora")
    anna.say("register acme/report 500ms work 0.3")
    dora.say("register acme/backup 500ms work 0.01")
    run = office.running("acme/report")
    anna.kill(signal.SIGKILL)

    never(lambda: office.runs("acme/report", by="dora"), within=3)
    with opened(office.url) as seen:
        job = next(each for each in seen.recurring_jobs() if each.key == "report")
        assert (job.enabled, job.disabled_reason) == (True, None)
    before = len(office.runs("acme/report"))

    (eve,) = office.open("eve")
    assert eve.say("register acme/report 500ms work 0.3") == ["registered acme/report, known already"]
    eventually(lambda: len(office.runs("acme/report")) >= before + 4, within=15)
    after = office.runs("acme/report", by="eve")
    assert after[0].fence > run.fence
    assert_on_the_grid(after, timedelta(milliseconds=500))
    ticks = [datetime.fromisoformat(each.tick) for each in after]
    missed = (ticks[0] - datetime.fromisoformat(run.tick)) / timedelta(milliseconds=500)
    assert missed >= 5, "what was missed in three seconds is made up by one run, not by all"
    assert run_twice(office.ledger.runs()) == []


@pytest.mark.requirement("E1", "E2")
def test_unregistering_removes_a_job_everywhere(office: Office) -> None:
    anna, ben = office.open("anna", "ben")
    for process in (anna, ben):
        for place in ("acme/report", "globex/report"):
            process.say(f"register {place} 200ms work 0.02")
    (again,) = anna.say("register acme/report 200ms")
    assert again.startswith("error: job 'report' of tenant 'acme' is registered in this process already")
    eventually(lambda: len(office.runs("acme/report")) >= 3 and len(office.runs("globex/report")) >= 3, within=15)

    assert ben.say("unregister acme/report") == ["unregistered acme/report"]
    gone_at = time.monotonic()
    others = len(office.runs("globex/report"))
    eventually(lambda: len(office.runs("globex/report")) >= others + 5, within=15)
    assert max(run.began for run in office.runs("acme/report")) < gone_at + 0.1
    assert anna.say("jobs") == ["globex/report every 200ms; from 2026-01-01 00:00+00:00"]
    (unknown,) = ben.say("unregister acme/report")
    assert unknown == "error: this process has not registered job 'report' of tenant 'acme'"

    assert ben.say("register acme/report 200ms work 0.02") == ["registered acme/report, new"]
    ran = len(office.runs("acme/report"))
    eventually(lambda: len(office.runs("acme/report")) >= ran + 2, within=15)
    assert run_twice(office.ledger.runs()) == []


@pytest.mark.requirement("E1", "E3")
def test_a_registration_wakes_idle_processes_at_once_and_a_new_schedule_all_that_have_the_function(
    office: Office,
) -> None:
    anna, ben = office.open("anna", "ben")
    with opened(office.url) as seen:  # they have gone to sleep; without a word they look again after 10 s
        eventually(lambda: [worker.idle for worker in seen.workers()] == [True, True], within=15)
    anna.say("register acme/report 200ms work 0.01")
    eventually(lambda: len(office.runs("acme/report")) >= 2, within=4)

    anna.say("register acme/yearly 8760h work 0.01")
    time.sleep(1)
    assert office.runs("acme/yearly") == []
    assert ben.say("register acme/yearly 200ms work 0.01") == ["registered acme/yearly, known already"]
    ben.kill(signal.SIGKILL)
    eventually(lambda: len(office.runs("acme/yearly", by="anna")) >= 2, within=8)


@pytest.mark.requirement("E6", "E7")
def test_functions_that_fail_or_exit_end_neither_the_process_nor_the_schedule(office: Office) -> None:
    (anna,) = office.open("anna")
    for kind in ("fail", "exit", "work"):
        anna.say(f"register acme/{kind} 300ms {kind} 0.01")
    eventually(lambda: all(len(office.runs(f"acme/{kind}")) >= 5 for kind in ("fail", "exit", "work")), within=20)
    assert anna.process.poll() is None
    for kind in ("fail", "exit", "work"):
        assert_on_the_grid(office.runs(f"acme/{kind}"), timedelta(milliseconds=300))
    with opened(office.url) as seen:
        found = {job.key: job for job in seen.recurring_jobs(tenant="acme")}
        assert all(job.enabled for job in found.values())
        assert found["work"].consecutive_failures == 0
        assert found["fail"].consecutive_failures >= 4
        assert found["fail"].last_error == "RuntimeError: this function always fails"
        assert found["exit"].last_error == "SystemExit: this function calls sys.exit"


@pytest.mark.requirement("E9", "E10")
def test_due_jobs_of_all_tenants_run_in_parallel(office: Office) -> None:
    (anna,) = office.open("anna")
    places = [f"tenant-{number}/report" for number in range(6)]
    for place in places:
        anna.say(f"register {place} 2s work 1.2")
    eventually(lambda: all(any(run.ended for run in office.runs(place)) for place in places), within=20)
    by_tick: dict[str, list[LedgerRun]] = defaultdict(list)
    for run in office.ledger.runs():
        by_tick[run.tick].append(run)
    assert max(len(runs) for runs in by_tick.values()) == 6, "nobody was kept waiting for another's run"


@pytest.mark.requirement("E2")
@pytest.mark.parametrize("way", ["stop", "end of input", "SIGTERM", "SIGINT"])
def test_a_process_stops_cleanly_and_lets_its_run_end(office: Office, way: str) -> None:
    (anna,) = office.open("anna")
    anna.say("register acme/report 1s work 0.6")
    office.running("acme/report")
    assert anna.process.stdin is not None
    match way:
        case "stop":
            anna.process.stdin.write("stop\n")
        case "end of input":
            anna.let_go()
        case name:
            anna.process.send_signal(signal.Signals[name])
    assert anna.process.wait(15) == 0
    assert [run.ended for run in office.runs("acme/report") if run.ended is None] == []
    with opened(office.url) as seen:
        assert seen.workers() == []


@pytest.mark.requirement("E2")
def test_a_second_start_without_a_stop_is_an_error(database_url: str) -> None:
    with isolated(jobs, database_url):
        jobs.start()
        try:
            with pytest.raises(WorkerError, match=r"Call stop\(\) first"):
                jobs.start()
        finally:
            jobs.stop()
        with pytest.raises(WorkerError, match="without start"):
            jobs.stop()
        jobs.start()
        jobs.stop()


@pytest.mark.parametrize(
    "command, answer",
    [
        ("register acme 2s", "error: write tenant/id, not 'acme'"),
        ("register acme/report never", "error: every"),
        ("register acme/report 2s dance", "error: there is no function 'dance', only work, nap, fail, exit"),
        ("dance", "error: cannot read 'dance"),
        ("jobs", "no jobs"),
    ],
)
def test_what_cannot_be_done_is_said(
    database_url: str, tmp_path: Path, command: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told: Callable[[str], str] = Process("anna", Ledger(tmp_path / "ledger")).obey
    with isolated(jobs, database_url):
        try:
            said = told(command)
        except Exception as error:
            said = f"error: {error}"
    assert said.startswith(answer)


@pytest.mark.deep
def test_the_show_tells_what_happens() -> None:
    given = {name: value for name, value in os.environ.items() if name != "DULY_URL"}
    given["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), given.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "examples.tenant_scheduler"]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert "Occurrences done twice: 0. Jobs run twice at once: 0." in done.stdout
    assert "in these 5 s globex/report ran 0 times" in done.stdout
