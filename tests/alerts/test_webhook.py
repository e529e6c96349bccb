"""The webhook: signed, tried again, in order, never sent elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple

import pytest

from duly import Duly
from duly.alerts import deliver
from duly.alerts.webhook import sign, verify
from duly.testing import TestClock
from tests.alerts.watching import OFF
from tests.helpers import opened


class Received(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """A server that keeps what it is sent and answers as it is told."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/hook?x=1"
        self.requests: list[Received] = []
        self.answers: list[int] = []
        """What to answer next; 200 when there is nothing more."""

    @property
    def words(self) -> list[str]:
        return [each.json["event"] for each in self.requests]


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append(Received(self.path, dict(self.headers), body))
            status = receiver.answers.pop(0) if receiver.answers else 200
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"http://127.0.0.1:{server.server_port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def alarmed(jobs: Duly, receiver: Receiver, **settings: Any) -> list[str]:
    """Have a reason to be told of; returns the jobs that are it."""
    jobs.alerts.configure(**OFF)
    jobs.alerts.configure(depth=0, clear_after=0, webhook=receiver.url, **settings)

    @jobs.task(queue="mail")
    def send() -> None: ...

    return [send.enqueue().id]


@pytest.mark.requirement("C13")
@pytest.mark.everywhere
def test_it_is_sent_the_start_and_the_end_signed(jobs: Duly, receiver: Receiver) -> None:
    ids = alarmed(jobs, receiver, webhook_secret="hush")
    [alert] = jobs.alerts.check()
    jobs.cancel_many(ids)
    jobs.alerts.check()
    jobs.alerts.check()
    assert receiver.words == ["started", "ended"]
    for request in receiver.requests:
        assert request.path == "/hook?x=1"
        assert request.headers["Content-Type"] == "application/json"
        assert verify("hush", request.headers, request.body, now=time.time())
        assert not verify("other", request.headers, request.body, now=time.time())
        assert not verify("hush", request.headers, request.body + b" ", now=time.time())
        assert not verify("hush", request.headers, request.body, now=time.time() + 301)
        assert request.json["id"] == request.headers["Duly-Id"]
    started, ended = (request.json["alert"] for request in receiver.requests)
    assert started["id"] == ended["id"] == alert.id
    assert started["message"] == "1 job waits in queue mail"
    assert (started["ended_at"], ended["ended_at"] is None) == (None, False)


def test_the_signature_is_what_the_page_says() -> None:
    """As written down in docs/howto/monitor.md, computed by hand."""
    import hashlib
    import hmac

    expected = hmac.new(b"hush", b'1700000000.{"a": 1}', hashlib.sha256).hexdigest()
    assert sign("hush", "1700000000", b'{"a": 1}') == f"v1={expected}"


def test_without_a_secret_there_is_no_signature(lite: Duly, receiver: Receiver) -> None:
    alarmed(lite, receiver)
    lite.alerts.check()
    assert "Duly-Signature" not in receiver.requests[0].headers


@pytest.mark.requirement("C13")
def test_what_fails_is_tried_again_later_and_later_with_the_same_id(database_url: str, receiver: Receiver) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock) as jobs:
        receiver.answers = [500, 302, 404]
        alarmed(jobs, receiver)
        [alert] = jobs.alerts.check()
        assert len(receiver.requests) == 1
        jobs.alerts.check()
        assert len(receiver.requests) == 1  # not at once
        for tries, pause in ((2, 2), (3, 4), (4, 8)):
            clock.advance(pause)
            jobs.alerts.check()
            assert len(receiver.requests) == tries
        assert {request.headers["Duly-Id"] for request in receiver.requests} == {receiver.requests[0].json["id"]}
        assert {request.path for request in receiver.requests} == {"/hook?x=1"}  # a redirect is not followed
        [told] = [each for each in jobs.alerts.told(alert.id) if each.channel == "webhook"]
        assert (told.tries, told.done_at is None, told.error) == (4, False, None)
        clock.advance(timedelta(hours=2))
        jobs.alerts.check()
        assert len(receiver.requests) == 4


def test_it_is_given_up_in_the_end_and_the_next_is_told_all_the_same(sqlite_url: str, receiver: Receiver) -> None:
    clock = TestClock()
    with opened(sqlite_url, clock=clock) as jobs:
        receiver.answers = [500] * deliver.TRIES
        ids = alarmed(jobs, receiver)
        [alert] = jobs.alerts.check()
        jobs.cancel_many(ids)
        for _ in range(deliver.TRIES):
            clock.advance(deliver.LONGEST_PAUSE)
            jobs.alerts.check()
        assert receiver.words == ["started"] * deliver.TRIES + ["ended"]
        [told] = [each for each in jobs.alerts.told(alert.id) if (each.channel, each.event) == ("webhook", "started")]
        assert told.error == f"given up after {deliver.TRIES} tries: it answered 500"


def test_nobody_there_is_a_failure_like_any_other(lite: Duly, receiver: Receiver) -> None:
    alarmed(lite, receiver)
    lite.alerts.configure(webhook="http://127.0.0.1:9/hook")
    [alert] = lite.alerts.check()
    [told] = [each for each in lite.alerts.told(alert.id) if each.channel == "webhook"]
    assert told.done_at is None
    assert "refused" in (told.error or "")


def test_one_that_hangs_is_left_after_its_time(lite: Duly) -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with receiving() as receiver:
            alarmed(lite, receiver, webhook_timeout=0.2)
        lite.alerts.configure(webhook=f"http://127.0.0.1:{silent.getsockname()[1]}/")
        begun = time.monotonic()
        [alert] = lite.alerts.check()
        assert time.monotonic() - begun < 5
        [told] = [each for each in lite.alerts.told(alert.id) if each.channel == "webhook"]
        assert "timed out" in (told.error or "")
