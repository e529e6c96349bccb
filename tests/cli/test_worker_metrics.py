"""`duly worker --metrics-port`: where it serves, and what is said about it."""

from __future__ import annotations

import re
import signal
import socket

from tests.cli.conftest import Project
from tests.helpers import eventually
from tests.metrics.reading import Metrics, ask

AT = re.compile(r"metrics at http://127\.0\.0\.1:([0-9]+)/metrics")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_worker_serves_metrics_and_health_at_its_port(project: Project) -> None:
    port = free_port()
    project.ok("migrate")
    worker = project.start("worker", "app.py", "--metrics-port", str(port))
    worker.says(f"metrics   http://127.0.0.1:{port}/metrics")
    worker.says(f"metrics at http://127.0.0.1:{port}/metrics")
    eventually(lambda: ask(("", port), "/readyz").status == 200, within=10)
    assert Metrics(ask(("", port), "/metrics").body).get("duly_worker_slots", kind="thread") == 10
    assert ask(("", port), "/healthz").json == {"ok": True, "checks": {"threads": "turn"}}
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 0


def test_several_processes_take_the_ports_after_it(sqlite_project: Project) -> None:
    sqlite_project.ok("migrate")
    worker = sqlite_project.start("worker", "app.py", "--processes", "3", "--metrics-port", str(free_port()))
    eventually(lambda: len(set(AT.findall(worker.output))) == 3, within=30)
    for port in set(AT.findall(worker.output)):
        assert ask(("", int(port)), "/healthz").status == 200
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 0


def test_a_port_that_is_taken_ends_it_with_what_to_do(sqlite_project: Project) -> None:
    sqlite_project.ok("migrate")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        worker = sqlite_project.start("worker", "app.py", "--metrics-port", str(port))
        assert worker.ends() == 2
        assert f"duly: cannot serve metrics at 127.0.0.1:{port}" in worker.output


def test_a_host_alone_is_refused(sqlite_project: Project) -> None:
    answer = sqlite_project.duly("worker", "app.py", "--metrics-host", "0.0.0.0")
    assert answer.code == 2
    assert "--metrics-host needs --metrics-port" in answer.err
