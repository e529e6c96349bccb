"""Where the system gives no more threads, and where nobody takes what is told: nothing is lost, nothing grows."""

from __future__ import annotations

import threading

import pytest

from duly import Duly
from duly.store.database import Hint
from duly.worker.registry import Kind
from tests.helpers import eventually
from tests.worker.test_process_runner import FAR, knowing


class Scarce:
    """A system that gives no threads for slots until told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, but: int = 0) -> None:
        self.refused: list[str] = []
        self.left: float = but
        start = threading.Thread.start

        def start_if_allowed(thread: threading.Thread) -> None:
            if thread.name.startswith(("duly-slot", "duly-process")):
                if self.left <= 0:
                    self.refused.append(thread.name)
                    raise RuntimeError("can't start new thread")
                self.left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_allowed)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_thread_that_cannot_be_started_costs_neither_its_slot_nor_the_job(
    lite: Duly, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    knowing(lite)
    lite.task(name="thread")(lambda: "ran")
    task = lite["thread" if kind == "thread" else "awhoami"]
    scarce = Scarce(monkeypatch)
    with lite.worker(thread_slots=1, process_slots=1) as worker:
        job = task.enqueue()
        eventually(lambda: scarce.refused)
        scarce.left = 1
        assert job.wait(FAR)
        assert [run.outcome for run in job.refresh().runs] == ["succeeded"]
        eventually(lambda: worker._slots.out == 0)
    assert scarce.left == 0


def test_what_finds_no_thread_is_left_to_others_while_the_threads_that_there_are_go_on(
    lite: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    @lite.task
    def hold() -> str:
        release.wait(20)
        return "held"

    scarce = Scarce(monkeypatch, but=1)
    with lite.worker(thread_slots=2) as worker:
        stored = [hold.enqueue(), hold.enqueue()]
        eventually(lambda: scarce.refused and worker.busy == 1)
        eventually(lambda: sorted(job.refresh().state for job in stored) == ["queued", "running"])
        release.set()
        assert [job.wait(FAR) for job in stored] == ["held", "held"]
        eventually(lambda: worker._slots.out == 0)
        assert worker._slots.pools[Kind.THREAD].free == 2


@pytest.mark.parametrize("how", ["retires", "stops"])
def test_a_worker_that_claims_no_more_keeps_no_hints(lite: Duly, how: str) -> None:
    started, release = threading.Event(), threading.Event()

    @lite.task
    def hold() -> None:
        started.set()
        release.wait(20)

    embedded = lite.worker(thread_slots=1, grace=20.0)
    worker = embedded.start()
    claimer = worker._claimer
    hold.enqueue()
    assert started.wait(5)
    stopping = threading.Thread(target=worker.retire if how == "retires" else embedded.stop)
    stopping.start()
    eventually(lambda: claimer.paused or claimer.used_up)
    kept = len(claimer._hints), len(claimer._dues)
    for n in range(100):
        worker._claimer.hint([Hint("jobs", "default", task="hold", rank=n)])
        worker._due_in(n)
    assert (len(claimer._hints), len(claimer._dues)) == kept
    release.set()
    stopping.join()
    embedded.stop()
