"""Callers that hold a recurring job again and again without a gap do not keep its runs from being recorded."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import psycopg
import pytest

from duly import Duly
from tests.helpers import eventually


def test_a_job_that_callers_hold_without_a_gap_goes_on_running(pg_url: str) -> None:
    jobs = Duly(pg_url)
    ran: list[float] = []

    @jobs.task
    def often() -> timedelta:
        ran.append(time.monotonic())
        return timedelta(milliseconds=10)

    job = often.recur()
    over = threading.Event()

    def hold() -> None:
        with psycopg.connect(pg_url, autocommit=True) as connection:
            while not over.is_set():
                with connection.transaction():
                    job_ = jobs.recurring_job("often", connection=connection)
                    job_.enable(connection=connection)
                    time.sleep(0.02)

    threads = [threading.Thread(target=hold) for _ in range(2)]
    with jobs.worker():
        for thread in threads:
            thread.start()
        try:
            time.sleep(1.0)
            before = len(ran)
            eventually(lambda: len(ran) >= before + 4, within=10)
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert job.refresh().consecutive_failures == 0
    jobs.close()


@pytest.mark.requirement("A6")
def test_enabling_again_forgets_failures_only_where_duly_had_given_up(jobs: Duly) -> None:
    @jobs.task
    def broken() -> None:
        raise ValueError("no")

    by_people, by_duly = broken.recur("a", every="1h"), broken.recur("b", every="1h", pause_after=1)
    with jobs.worker():
        eventually(lambda: by_people.refresh().consecutive_failures >= 1)
        eventually(lambda: not by_duly.refresh().enabled)
    for job in (by_people, by_duly):
        job.disable()
        job.enable()
    assert by_people.refresh().consecutive_failures >= 1, "whether it works has nothing to do with who wants it"
    assert by_duly.refresh().consecutive_failures == 0
