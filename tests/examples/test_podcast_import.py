"""The podcast importer as its users run it: real server processes on one file, a slow feed server, signals."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
import pytest

from examples.podcast_import.slow_feed import SlowFeeds

ROOT = Path(__file__).parents[2]
RUNNING = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")
LIMIT = 3
T = TypeVar("T")


class Server:
    """One server process."""

    def __init__(self, file: Path) -> None:
        self.log = file.with_name(f"server-{time.monotonic_ns()}.log")
        environment = os.environ | {"PODCASTS_FILE": str(file), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), environment.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "uvicorn", "--app-dir", "examples", "--port", "0", "podcast_import.app:app"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        self.http = httpx.Client(timeout=10, trust_env=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_up(self) -> None:
        def address() -> str | None:
            assert self.process.poll() is None, self.log.read_text()
            found = RUNNING.search(self.log.read_text())
            return None if found is None else found[1]

        self.http.base_url = httpx.URL(wait_for("the server to be up", address))

    def post(self, feed_url: str) -> str:
        answer = self.http.post("/api/podcasts/import", json={"feed_url": feed_url})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.http.get(f"/api/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def ended(self, job_id: str) -> dict[str, Any]:
        """Wait for a job to end and return how."""

        def end() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["state"] in ("succeeded", "failed", "cancelled") else None

        return wait_for(f"job {job_id} to end", end)

    def stop(self, by: signal.Signals) -> int:
        self.process.send_signal(by)
        return self.process.wait(15)

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(15)


class LedgerRun(NamedTuple):
    """One import's run, as the application wrote it down."""

    job_id: str
    fence: int
    pid: int
    started: float
    ended: float | None


class PodcastFile:
    """The application's SQLite file, looked at from outside, and the servers that were started on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.servers: list[Server] = []

    def serve(self, count: int = 1) -> list[Server]:
        """Start servers, all at once."""
        started = [Server(self.path) for _ in range(count)]
        self.servers += started
        for server in started:
            server.wait_until_up()
        return started

    def rows(self, sql: str, *params: object) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=10)) as connection:
            return connection.execute(sql, params).fetchall()

    def ledger(self) -> list[LedgerRun]:
        return [LedgerRun._make(row) for row in self.rows("SELECT job_id, fence, pid, started, ended FROM import_runs")]

    def in_the_middle(self, pid: int, below: int) -> bool:
        """Whether a process is importing a podcast of which some episodes are here, but fewer than `below`."""
        counts = self.rows(
            """SELECT count(guid) FROM import_runs LEFT JOIN episodes USING (podcast_id)
               WHERE pid = ? AND ended IS NULL GROUP BY podcast_id""",
            pid,
        )
        return any(0 < count < below for (count,) in counts)


@pytest.fixture(scope="module")
def feeds() -> Iterator[SlowFeeds]:
    with SlowFeeds() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def podcasts(tmp_path: Path) -> Iterator[PodcastFile]:
    file = PodcastFile(tmp_path / "podcasts.db")
    try:
        yield file
    finally:
        for server in file.servers:
            server.close()


@pytest.mark.requirement("D1", "D2", "D3", "D6")
def test_imports_of_a_killed_server_are_done_by_others_and_never_more_than_three_run(
    podcasts: PodcastFile, feeds: SlowFeeds
) -> None:
    both = podcasts.serve(2)
    names = [f"show-{number}" for number in range(30)]
    jobs = {}
    for number, name in enumerate(names):
        flaky = "&flaky=1" if number % 10 == 5 else ""
        jobs[name] = both[number % 2].post(f"{feeds.url}/{name}?episodes=30&seconds=0.4{flaky}")

    def busy() -> Server | None:
        return next((server for server in both if podcasts.in_the_middle(server.pid, below=20)), None)

    victim = wait_for("one of them to be in the middle of an import", busy)
    (survivor,) = (server for server in both if server is not victim)
    killed = {victim.pid: time.monotonic()}
    victim.stop(signal.SIGKILL)
    podcasts.serve()

    ended = {name: survivor.ended(job_id) for name, job_id in jobs.items()}
    assert {(job["state"], job["result"]) for job in ended.values()} == {("succeeded", 30)}

    ledger = podcasts.ledger()
    cut_off = [run for run in ledger if run.ended is None]
    assert cut_off
    assert {run.pid for run in cut_off} == {victim.pid}
    assert {run.job_id for run in cut_off} <= {run.job_id for run in ledger if run.ended and run.pid != victim.pid}
    assert most_at_once(ledger, killed) == LIMIT

    listed = survivor.http.get("/api/podcasts").json()
    assert [(each["title"], each["job_id"], each["episodes"]) for each in listed] == [
        (f"Podcast {name}", jobs[name], 30) for name in names
    ]
    stored = podcasts.rows("SELECT guid FROM episodes ORDER BY guid")
    assert stored == sorted((f"{name}-{number}",) for name in names for number in range(1, 31))


@pytest.mark.requirement("D1", "D4")
def test_a_worker_stops_with_its_server_and_the_next_one_goes_on_repeating_nothing(
    podcasts: PodcastFile, feeds: SlowFeeds
) -> None:
    (server,) = podcasts.serve()
    jobs = [server.post(f"{feeds.url}/stopped-{number}?episodes=10&seconds=0.8") for number in range(6)]
    wait_for("three imports to be under way", lambda: len(podcasts.ledger()) >= LIMIT)

    assert server.stop(signal.SIGTERM) in (0, -signal.SIGTERM), server.log.read_text()
    assert podcasts.rows("SELECT count(*) FROM duly_workers") == [(0,)]
    assert podcasts.rows("SELECT DISTINCT state FROM duly_places ORDER BY state") == [("queued",), ("succeeded",)]

    (another,) = podcasts.serve()
    assert [another.ended(job_id)["result"] for job_id in jobs] == [10] * 6
    ledger = podcasts.ledger()
    assert sorted(run.job_id for run in ledger) == sorted(jobs)
    assert most_at_once(ledger, {}) == LIMIT


@pytest.mark.requirement("D2", "D3")
def test_an_import_shows_its_progress_its_result_or_its_error(podcasts: PodcastFile, feeds: SlowFeeds) -> None:
    (server,) = podcasts.serve()
    slow = server.post(f"{feeds.url}/slow?episodes=50&seconds=2")
    assert server.post(f"{feeds.url}/slow?episodes=50&seconds=2") == slow, "one import of a podcast at a time"
    flaky = server.post(f"{feeds.url}/fails-once?episodes=5&seconds=0&flaky=1")
    missing = server.post(f"{feeds.url}/missing")

    failed = server.ended(missing)
    assert (failed["state"], failed["attempts"], failed["result"]) == ("failed", 1, None)
    assert failed["error"] == f"{feeds.url}/missing answered 404 Not Found"
    wait_for("progress", lambda: server.job(slow)["progress"])
    under_way = server.job(slow)
    assert under_way["state"] == "running"
    assert 0 < under_way["progress"] < 1
    assert re.fullmatch(r"\d+ episodes", under_way["doing"])
    again = server.ended(flaky)
    assert (again["state"], again["attempts"], again["result"]) == ("succeeded", 2, 5)
    assert again["error"] == "HTTP Error 503: Service Unavailable"
    assert server.ended(slow)["result"] == 50

    assert server.http.get("/api/jobs/nonsense").status_code == 404
    for wrong in ("", "[]", "{}", '{"feed_url": null}', '{"feed_url": "file:///etc/passwd"}'):
        assert server.http.post("/api/podcasts/import", content=wrong).status_code == 400
    assert len(server.http.get("/api/podcasts").json()) == 3


def most_at_once(runs: Iterable[LedgerRun], killed: dict[int, float]) -> int:
    """How many runs there were at the fullest moment. One that was cut off ended when its process was killed."""
    changes: list[tuple[float, int]] = []
    for run in runs:
        ended = killed[run.pid] if run.ended is None else run.ended
        changes += [(run.started, +1), (max(run.started, ended), -1)]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def wait_for(what: str, condition: Callable[[], T | None], seconds: float = 20.0) -> T:
    """Return what `condition` returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.01)
    return found
