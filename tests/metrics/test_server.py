"""A worker's endpoint: metrics, whether it lives, whether it is ready. To this machine alone unless told otherwise."""

from __future__ import annotations

import socket
import sys
import threading
from typing import Any

import pytest

from duly import ConfigurationError, Duly
from duly.store.migrate import SchemaVersion
from duly.worker import service
from tests.helpers import eventually, opened
from tests.metrics.reading import Answer, Metrics, ask
from tests.postgres import PostgresServer


def test_a_worker_serves_metrics_of_itself_and_of_the_database(database_url: str) -> None:
    with opened(database_url, metrics_listen=0) as jobs:

        @jobs.task
        def work() -> None: ...

        with jobs.worker() as worker:
            assert worker.metrics_address is not None
            assert worker.metrics_address[0] == "127.0.0.1"
            answer = ask(worker.metrics_address, "/metrics")
            assert answer.status == 200
            found = Metrics(answer.body)
            assert found.get("duly_worker_claimed_total") == 0
            assert found.get("duly_database_up") == 1
            assert found.get("duly_observation_age_seconds") is not None
            assert ask(worker.metrics_address, "/metrics", Accept="application/openmetrics-text").kind.startswith(
                "application/openmetrics-text"
            )
            assert ask(worker.metrics_address, "/other").status == 404
        with pytest.raises(OSError, match="refused"):
            ask(worker.metrics_address or ("127.0.0.1", 9), "/metrics")


def test_without_a_port_nothing_listens(lite: Duly) -> None:
    with lite.worker() as worker:
        assert worker.metrics_address is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1"])
def test_a_page_of_the_web_whose_name_leads_here_is_refused(sqlite_url: str, host: str) -> None:
    with opened(sqlite_url, metrics_listen=0) as jobs, jobs.worker() as worker:
        assert ask(worker.metrics_address, "/metrics", Host=host).status == 403
        assert ask(worker.metrics_address, "/healthz", Host="localhost:9150").status == 200


def test_at_another_address_it_is_asked_by_any_name(sqlite_url: str) -> None:
    with opened(sqlite_url, metrics_listen="0.0.0.0:0") as jobs, jobs.worker() as worker:
        assert worker.metrics_address is not None
        assert worker.metrics_address[0] == "0.0.0.0"
        assert ask(worker.metrics_address, "/healthz", Host="worker-1.internal").status == 200


def test_without_prometheus_client_health_works_and_metrics_say_what_is_missing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with opened(sqlite_url, metrics_listen=0) as jobs, jobs.worker() as worker:
        answer = ask(worker.metrics_address, "/metrics")
        assert answer.status == 501
        assert "pip install 'duly[metrics]'" in answer.body
        assert ask(worker.metrics_address, "/healthz").status == 200
        assert ask(worker.metrics_address, "/readyz").status == 200


def test_a_port_that_is_taken_is_refused_with_what_to_do(sqlite_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with opened(sqlite_url, metrics_listen=port) as jobs:
            worker = jobs.worker()
            with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}.*--metrics-port"):
                worker.start()
            assert jobs.workers() == []


def test_requests_that_never_end_do_not_keep_others_from_an_answer(sqlite_url: str) -> None:
    with opened(sqlite_url, metrics_listen=0) as jobs, jobs.worker() as worker:
        assert worker.metrics_address is not None
        slow = [socket.create_connection(worker.metrics_address) for _ in range(10)]
        for each in slow:
            each.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert ask(worker.metrics_address, "/healthz").status == 200
        for each in slow:
            each.close()


# -- health -----------------------------------------------------------------------------------------------------------


def unwell(answer: Answer) -> Answer | None:
    """The answer, if it says that something is wrong."""
    return answer if answer.status == 503 else None


def test_a_worker_that_starts_runs_and_drains_says_so(database_url: str) -> None:
    seen: dict[str, Any] = {}
    go_on = threading.Event()
    with opened(database_url, metrics_listen=0) as jobs:

        @jobs.task
        def hold() -> None:
            go_on.wait(20)

        embedded = jobs.worker()

        @jobs.on_start
        def while_it_starts() -> None:
            seen["starting"] = ask(embedded._worker.metrics_address, "/readyz")

        with embedded as worker:
            hold.enqueue()
            eventually(lambda: worker.busy)
            seen["running"] = ask(worker.metrics_address, "/readyz")
            stopping = threading.Thread(target=worker.stop)
            stopping.start()
            eventually(lambda: worker.state == "draining")
            seen["draining"] = ask(worker.metrics_address, "/readyz")
            seen["alive"] = ask(worker.metrics_address, "/healthz")
            go_on.set()
            stopping.join()
    assert seen["starting"].status == 503
    assert seen["starting"].json["checks"]["worker"] == "is starting"
    assert (seen["running"].status, seen["running"].json["ok"]) == (200, True)
    assert seen["draining"].status == 503
    assert seen["draining"].json["checks"] == {"worker": "is draining", "database": "answers"}
    assert seen["alive"].status == 200


def test_a_thread_that_does_not_turn_is_found(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_still, go_on = threading.Event(), threading.Event()

    def stand_still() -> float:
        stands_still.set()
        return float(go_on.wait(20))

    with opened(sqlite_url, metrics_listen=0) as jobs, jobs.worker() as worker:
        watch = worker._watch_service
        monkeypatch.setattr(watch, "_step", stand_still)
        watch.wake()
        assert stands_still.wait(10)
        assert ask(worker.metrics_address, "/healthz").status == 200  # so far it has only begun
        watch._turn_by -= service.STUCK_SECONDS
        answer = ask(worker.metrics_address, "/healthz")
        go_on.set()
    assert answer.status == 503
    assert answer.json == {"ok": False, "checks": {"threads": "do not turn: watch"}}


def not_up(found: Metrics) -> Metrics | None:
    """The metrics, if they say that the database does not answer. A look is kept for some seconds."""
    return found if found.get("duly_database_up") == 0 else None


def test_without_its_database_a_worker_is_not_ready_but_lives(pg_server: PostgresServer) -> None:
    with opened(pg_server.url(), metrics_listen=0) as jobs:
        jobs.migrate()
        with jobs.worker() as worker:
            assert ask(worker.metrics_address, "/readyz").status == 200
            pg_server.stop()
            try:
                answer = eventually(lambda: unwell(ask(worker.metrics_address, "/readyz")), within=15)
                assert answer is not None
                assert answer.json["checks"]["worker"] == "runs"
                assert answer.json["checks"]["database"] != "answers"
                assert ask(worker.metrics_address, "/healthz").status == 200
                found = eventually(lambda: not_up(Metrics(ask(worker.metrics_address, "/metrics").body)), within=20)
                assert found is not None
                assert found.get("duly_worker_slots", kind="thread") is None  # no task was declared
                assert found.get("duly_worker_busy") == 0
            finally:
                pg_server.start()
            eventually(lambda: ask(worker.metrics_address, "/readyz").status == 200, within=20)


def test_a_schema_that_does_not_fit_is_not_ready(lite: Duly) -> None:
    from duly.metrics.health import Readiness

    class Running:
        state = "running"

        def stuck(self) -> list[str]:
            return []

    lite.counts()
    assert Readiness(lite.store, Running()).look().ok

    def newer() -> SchemaVersion:
        return SchemaVersion(9_999, 9_998)

    lite.store.database.schema_version = newer  # type: ignore[method-assign]
    answer = Readiness(lite.store, Running()).look()
    assert not answer.ok
    assert "9999" in answer.checks["database"]
