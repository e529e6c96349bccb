"""Progress is seen while the job runs; what a handler logs is kept with its run, within bounds."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from duly import Backoff, Duly, current_job
from tests.helpers import eventually, opened


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_progress_is_seen_while_the_job_runs(jobs: Duly, kind: str) -> None:
    go = threading.Event()

    def work() -> None:
        job = current_job()
        job.progress(0.1, "first")
        job.progress(0.4, "forty per cent \x00 ü")
        go.wait(10)
        job.progress(0.9)

    async def awork() -> None:
        await asyncio.to_thread(work)

    task = jobs.declare(work if kind == "def" else awork, {"name": "work"})
    with jobs.worker():
        job = task.enqueue()
        eventually(lambda: job.refresh().progress is not None)
        assert job.progress == pytest.approx(0.4)
        assert job.progress_text is not None
        assert job.progress_text.startswith("forty per cent")
        assert job.to_dict()["progress"] == pytest.approx(0.4)
        go.set()
        job.wait(5)


@pytest.mark.parametrize("given", [-5, 0, 1, 7, float("nan"), float("inf"), None], ids=repr)
def test_progress_is_from_0_to_1_whatever_is_said(lite: Duly, given: float | None) -> None:
    said = threading.Event()

    @lite.task
    def work() -> None:
        current_job().progress(given, "x" * 100_000)
        said.wait(10)

    with lite.worker():
        job = work.enqueue()
        eventually(lambda: job.refresh().progress_text is not None)
        said.set()
        assert job.progress is None or 0 <= job.progress <= 1
        assert len(job.progress_text or "") < 1_000
        job.wait(5)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_a_handler_logs_is_kept_with_its_run(jobs: Duly, kind: str) -> None:
    logger = logging.getLogger("shop.orders")
    logger.setLevel(logging.INFO)

    def work(n: int) -> None:
        logger.info("order %d", n)
        current_job().log("by hand")
        if n == 1 and current_job().attempt == 1:
            logger.warning("going to fail")
            raise ValueError

    async def awork(n: int) -> None:
        await asyncio.sleep(0)
        work(n)

    task = jobs.declare(work if kind == "def" else awork, {"name": "work", "retry": Backoff.fixed(0)})
    with jobs.worker():
        logger.info("outside any job")
        one, two = task.enqueue(1), task.enqueue(2)
        one.wait(5)
        two.wait(5)
    first, second = one.runs
    assert [line.split(" ", 1)[1] for line in first.log] == [
        "INFO shop.orders: order 1",
        "hand",
        "WARNING shop.orders: going to fail",
    ]
    assert len(second.log) == 2
    assert len(two.runs[0].log) == 2
    assert "order 2" in two.runs[0].log[0]


def test_a_line_is_kept_once_with_two_workers_in_one_process(jobs: Duly, database_url: str) -> None:
    logger = logging.getLogger("shop")
    with opened(database_url) as other:

        @jobs.task
        def work() -> None:
            logger.warning("once")

        @other.task(name="work")
        def same() -> None:
            logger.warning("once")

        with jobs.worker(), other.worker():
            stored = [work.enqueue() for _ in range(10)]
            for job in stored:
                job.wait(5)
    assert [len(job.runs[0].log) for job in stored] == [1] * 10


@pytest.mark.everywhere
def test_the_lines_of_a_run_are_bounded_and_storable(jobs: Duly) -> None:
    logger = logging.getLogger("shop")

    @jobs.task
    def work() -> int:
        current_job().log("nul \x00 surrogate \ud800 newline \n end")  # not by logging: pytest could not pass it on
        for n in range(20_000):
            logger.warning("line %d %s", n, "x" * 100)
        logger.warning("y" * 10_000_000)
        return 1

    with jobs.worker():
        job = work.enqueue()
        assert job.wait(20) == 1
    (run,) = job.runs
    text = "\n".join(run.log)
    assert 10_000 < len(text) < 100_000
    assert run.log[-1] == "..."
    assert "surrogate" in text


def test_the_number_of_lines_is_a_setting(database_url: str) -> None:
    with opened(database_url, log_lines=5) as jobs:

        @jobs.task
        def work() -> None:
            for n in range(100):
                current_job().log(f"line {n}")

        with jobs.worker():
            job = work.enqueue()
            job.wait(5)
        assert job.runs[0].log == [*(f"line {n}" for n in range(5)), "..."]


def test_logging_that_raises_is_no_failure_of_the_job(lite: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger = logging.getLogger("shop")

    @lite.task
    def work() -> int:
        logger.warning("one %d too %d few", 1)
        return 1

    with lite.worker():
        assert work.enqueue().wait(5) == 1


def test_nothing_is_left_on_the_root_logger(lite: Duly) -> None:
    before = list(logging.getLogger().handlers)

    @lite.task
    def work() -> None: ...

    with lite.worker():
        work.enqueue().wait(5)
        assert logging.getLogger().handlers != before
    assert logging.getLogger().handlers == before
