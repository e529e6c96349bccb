"""`duly web`, `duly tokens`, and the dashboard in `duly dev`: closed, and open for who started it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest

from duly import Duly
from duly.domain.passwords import matches
from tests.cli.conftest import Project, Started
from tests.helpers import ROOT, eventually

pytestmark = pytest.mark.requirement("S1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def link_of(started: Started) -> str:
    started.says("/open?key=")
    found = re.search(r"http://\S+/open\?key=[\w-]+", started.output)
    assert found is not None
    return found[0]


def ask(url: str, **given: Any) -> httpx.Response:
    def answered() -> httpx.Response | None:
        try:
            return httpx.request(given.pop("method", "GET"), url, timeout=10, **given)
        except httpx.ConnectError:
            return None

    answer = eventually(answered, 10, 0.05)
    assert answer is not None
    return answer


def test_the_link_lets_in_once_and_a_signal_ends_it(project: Project) -> None:
    web = project.start("web", "app.py", "--port", str(free_port()))
    link = link_of(web)
    base = link.partition("/open")[0]
    assert base.startswith("http://127.0.0.1:")
    assert ask(f"{base}/api/admin/jobs").status_code == 401
    first = ask(link)
    assert first.status_code == 303
    assert ask(link).status_code == 401
    cookies = dict(first.cookies)
    me = ask(f"{base}/api/admin/me", cookies=cookies).json()
    assert (me["scopes"], me["read_only"]) == (["read", "enqueue", "operate", "admin"], False)
    assert ask(f"{base}/api/admin/jobs/stats", cookies=cookies).json()["queued"] == 0
    assert ask(f"{base}/healthz", headers={"host": "evil.test"}).status_code == 421
    web.signal(signal.SIGINT)
    assert web.ends() == 0
    assert "Traceback" not in web.output


def test_a_token_of_the_environment_is_enough_for_programs(
    sqlite_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    token = sqlite_project.ok("tokens", "create", "ci", "--scope", "operate", "--json").json["token"]
    web = sqlite_project.start("web", "app.py", "--port", str(port), "--read-only", "--json")
    web.says('"serving"')
    event = json.loads(web.output.splitlines()[0])
    assert (event["address"], event["read_only"]) == (f"http://127.0.0.1:{port}", True)
    headers = {"authorization": f"Bearer {token}"}
    assert ask(f"{event['address']}/api/admin/me", headers=headers).json()["name"] == "ci"
    refused = ask(
        f"{event['address']}/api/jobs", method="POST", json={"task": "add", "args": {"x": 1}}, headers=headers
    )
    assert refused.json()["error"]["message"] == "this is read-only"
    web.signal()
    assert web.ends() == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_another_address_needs_a_credential(sqlite_project: Project, host: str) -> None:
    answer = sqlite_project.duly("web", "app.py", "--host", host)
    assert answer.code == 2
    assert "DULY_TOKEN" in answer.err


def test_another_address_with_a_credential_prints_no_link(sqlite_project: Project) -> None:
    sqlite_project.ok("tokens", "create", "ci")
    web = sqlite_project.start(
        "web", "app.py", "--host", "0.0.0.0", "--port", str(free_port()), "--allow-host", "me.test"
    )
    web.says("Sign in with a token")
    assert "key=" not in web.output
    base = re.search(r"http://0\.0\.0\.0:(\d+)", web.output)
    assert base is not None
    local = f"http://127.0.0.1:{base[1]}/healthz"
    assert ask(local, headers={"host": "me.test"}).status_code == 200
    assert ask(local, headers={"host": "you.test"}).status_code == 421
    web.signal()
    assert web.ends() == 0


def test_a_port_that_is_taken_is_said(sqlite_project: Project) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        answer = sqlite_project.duly("web", "app.py", "--port", str(port))
    assert answer.code == 2
    assert f"--port {port + 1}" in answer.err


def test_without_the_packages_it_says_which(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    answer = sqlite_project.duly("web", "app.py")
    assert answer.code == 2
    assert "pip install 'duly[web]'" in answer.err


def test_duly_dev_serves_the_dashboard_too(sqlite_project: Project) -> None:
    dev = sqlite_project.start("dev", "app.py", "--port", str(free_port()))
    link = link_of(dev)
    first = ask(link)
    assert first.status_code == 303
    cookies, base = dict(first.cookies), link.partition("/open")[0]
    assert ask(f"{base}/api/admin/tasks", cookies=cookies).status_code == 200
    sqlite_project.write("other.py", "X = 1\n")
    dev.says("other.py changed; starting again")
    assert ask(f"{base}/api/admin/me", cookies=cookies).status_code == 200  # still signed in
    assert dev.output.count("/open?key=") == 1
    dev.signal()
    assert dev.ends() == 0


def test_duly_dev_without_it(sqlite_project: Project) -> None:
    dev = sqlite_project.start("dev", "app.py", "--no-web")
    dev.says("Give it something to do")
    dev.signal()
    assert dev.ends() == 0
    assert "/open?key=" not in dev.output


@pytest.mark.requirement("S11")
def test_tokens_are_made_listed_and_revoked(project: Project, jobs: Duly) -> None:
    options = ("--scope", "read", "--scope", "enqueue", "--tenant", "acme", "--expires", "90d")
    made = project.ok("tokens", "create", "ci", *options)
    secret = made.out.strip()
    assert secret.startswith("duly_")
    assert "not shown again" in made.err
    holder = jobs.token_holder(secret)
    assert holder is not None
    assert (holder.name, holder.scopes, holder.tenant) == ("ci", "read enqueue", "acme")
    listed = project.ok("tokens", "list").out
    assert "acme" in listed
    assert secret not in listed
    [one] = project.ok("tokens", "list", "--json").json
    assert one["scopes"] == ["read", "enqueue"]
    project.ok("tokens", "revoke", one["id"])
    assert jobs.token_holder(secret) is None
    assert project.ok("tokens", "list").out.startswith("there are no tokens")
    again = project.duly("tokens", "revoke", one["id"])
    assert (again.code, "there is no token" in again.err) == (1, True)
    assert [(each.action, each.subject) for each in jobs.audit()] == [("revoke_token", "ci"), ("create_token", "ci")]


@pytest.mark.requirement("S11")
def test_only_the_hash_of_a_token_is_stored(project: Project, jobs: Duly) -> None:
    from tests.store.raw import Raw

    secret = jobs.create_token("ci").secret
    raw = Raw(project.url)
    rows = raw.rows("SELECT * FROM duly.tokens")
    raw.close()
    assert secret not in str(rows)
    assert secret[5:] not in str(rows)


def test_a_password_is_hashed_for_the_settings(sqlite_project: Project) -> None:
    made = sqlite_project.duly("tokens", "hash-password", "--password", "open sesame", "--json").json["hash"]
    assert matches("open sesame", made)
    assert not matches("open sesam", made)
    assert ":" not in made


@pytest.mark.parametrize("arguments", ["tokens create", "tokens create x --scope god", "tokens create x --expires 0s"])
def test_wrong_tokens_are_refused(sqlite_project: Project, arguments: str) -> None:
    assert sqlite_project.duly(*arguments.split()).code == 2


def test_importing_duly_does_not_import_the_web_side() -> None:
    import subprocess

    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    code = "import sys, duly; duly.Duly; print([m for m in sys.modules if m.startswith(('starlette', 'duly.web'))])"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert made.stdout.strip() == "[]"


# -- stopping while a tab is open -------------------------------------------------------------------------------------

SOON = 5.0
"""Seconds that stopping may take on a machine that is very busy; else it is half a second, with a tab or without."""


def stops_while_a_tab_is_open(started: Started, link: str) -> None:
    """Open a tab, which listens; stop the server with Ctrl-C: it ends at once, and ends the stream in good order."""
    base, cookies = link.partition("/open")[0], dict(ask(link).cookies)
    with httpx.stream("GET", f"{base}/live?page=overview", cookies=cookies, timeout=20) as stream:
        pieces = stream.iter_text()
        assert "retry: 3000" in next(pieces)
        begun = time.monotonic()
        started.signal(signal.SIGINT)
        assert started.ends() == 0
        took = time.monotonic() - begun
        "".join(pieces)  # an answer that is cut off would raise
    assert took < SOON
    for word in ("Traceback", "Cancel", "exceeded", "ERROR"):
        assert word not in started.output, started.output


@pytest.mark.parametrize("command", [("web",), ("dev",)])
def test_ctrl_c_ends_it_at_once_while_a_tab_is_open(sqlite_project: Project, command: tuple[str, ...]) -> None:
    started = sqlite_project.start(*command, "app.py", "--port", str(free_port()))
    stops_while_a_tab_is_open(started, link_of(started))


MOUNTED = """
import sys
import time
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
import duly.web
from duly import Duly
jobs = Duly()
web = duly.web.app(jobs, auth=lambda request: duly.web.Principal.make("alice", ["admin"]))
uvicorn.run(Starlette(routes=[Mount("/duly", web)]), port=int(sys.argv[1]), log_level="info")
"""


def test_an_application_in_which_it_is_mounted_can_be_stopped_while_a_tab_is_open(sqlite_project: Project) -> None:
    port = free_port()
    sqlite_project.write("mounted.py", MOUNTED)
    environment = {**os.environ, "DULY_URL": sqlite_project.url, "PYTHONPATH": str(ROOT / "src")}
    server = subprocess.Popen(
        [sys.executable, "mounted.py", str(port)], cwd=sqlite_project.folder, env=environment, stderr=subprocess.PIPE
    )
    try:
        assert ask(f"http://127.0.0.1:{port}/duly/healthz").status_code == 200
        with httpx.stream("GET", f"http://127.0.0.1:{port}/duly/live?page=overview", timeout=20) as stream:
            pieces = stream.iter_text()
            assert "retry: 3000" in next(pieces)
            server.send_signal(signal.SIGINT)
            "".join(pieces)  # an answer that is cut off would raise
            server.wait(10)
    finally:
        server.kill()
        said = server.communicate()[1]
    assert b"Finished server process" in said
    assert b"exceeded" not in said
