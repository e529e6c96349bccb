"""Enqueue: every option arrives, and what is refused is refused clearly with nothing stored."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from duly import (
    ArgumentError,
    Backoff,
    ConfigurationError,
    DatabaseUnavailable,
    Duly,
    DulyError,
    InvalidOption,
    PayloadTooLarge,
    State,
    Task,
    UnsupportedDatabase,
)
from duly.domain.clock import from_us
from tests.helpers import opened


def declare_send(jobs: Duly) -> Task[..., str]:
    @jobs.task
    def send(user_id: int, template: str = "plain", extra: dict[str, Any] | None = None) -> str:
        return f"{user_id} {template}"

    return send


@pytest.fixture
def send(jobs: Duly) -> Task[..., str]:
    return declare_send(jobs)


@pytest.fixture
def lite_send(lite: Duly) -> Task[..., str]:
    return declare_send(lite)


def stored(jobs: Duly) -> int:
    return len(jobs.list(limit=1000))


@pytest.mark.requirement("B1", "C10", "D3")
@pytest.mark.everywhere
def test_a_job_has_all_that_people_ask_about(jobs: Duly, send: Task[..., str]) -> None:
    before = datetime.now(UTC)
    job = send.using(tenant="acme", enqueued_by="ann", tags=["a", "b"], priority=7).enqueue(7, template="fancy")
    assert UUID(job.id).version == 7
    found = jobs.get(job.id)
    assert found.task == "send"
    assert found.tenant == "acme"
    assert found.args == {"user_id": 7, "template": "fancy"}
    assert found.state is State.QUEUED
    assert (found.attempts, found.retries, found.max_attempts) == (0, 0, 5)
    assert (found.priority, found.queue, found.enqueued_by, found.tags) == (7, "default", "ann", ["a", "b"])
    assert found.last_error is None
    assert found.started_at is None
    assert found.finished_at is None
    assert found.duration is None
    assert before - timedelta(seconds=1) <= found.created_at <= datetime.now(UTC) + timedelta(seconds=1)
    assert found.updated_at == found.created_at
    assert found.run_at == found.created_at
    assert found.to_dict()["state"] == "queued"


@pytest.mark.requirement("D8")
def test_ids_sort_by_the_time_of_enqueueing(jobs: Duly, send: Task[..., str]) -> None:
    ids = [send.enqueue(n).id for n in range(50)]
    assert ids == sorted(ids)
    assert [job.id for job in jobs.list()] == sorted(ids, reverse=True)


def test_a_job_is_enqueued_by_the_name_of_its_task(jobs: Duly, send: Task[..., str]) -> None:
    job = jobs.enqueue("send", {"user_id": 3}, priority=9)
    assert (job.args, job.priority) == ({"user_id": 3}, 9)
    later = asyncio.run(jobs.aenqueue("send", {"user_id": 4}, delay=60))
    assert later.state is State.SCHEDULED


def test_a_job_is_enqueued_from_a_coroutine(jobs: Duly, send: Task[..., str]) -> None:
    async def main() -> list[str]:
        one = await send.aenqueue(1)
        many = await send.aenqueue_many([{"user_id": 2}, {"user_id": 3}])
        none = await send.aenqueue_many([])
        assert none == []
        return [one.id, *(each.id for each in many)]

    assert [jobs.get(job_id).args["user_id"] for job_id in asyncio.run(main())] == [1, 2, 3]


@pytest.mark.requirement("B7")
@pytest.mark.parametrize("delay", [90, 90.0, "1m30s", timedelta(seconds=90)], ids=repr)
def test_a_delay_may_be_written_in_four_ways(jobs: Duly, send: Task[..., str], delay: Any) -> None:
    job = send.using(delay=delay).enqueue(1)
    assert job.state is State.SCHEDULED
    assert job.run_at is not None
    assert abs(job.run_at - job.created_at - timedelta(seconds=90)) < timedelta(seconds=1)


@pytest.mark.requirement("B7")
def test_a_job_is_stored_for_an_instant_in_any_time_zone(jobs: Duly, send: Task[..., str]) -> None:
    moment = datetime(2090, 3, 31, 2, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    job = send.using(run_at=moment).enqueue(1)
    assert job.state is State.SCHEDULED
    assert job.run_at == moment


def test_an_instant_in_the_past_is_due_at_once_and_ahead_of_later_ones(jobs: Duly, send: Task[..., str]) -> None:
    moment = datetime.now(UTC) - timedelta(hours=1)
    job = send.using(run_at=moment).enqueue(1)
    assert job.state is State.QUEUED
    assert job.run_at == moment


def test_a_delay_of_nothing_is_due_at_once(jobs: Duly, send: Task[..., str]) -> None:
    assert send.using(delay=0).enqueue(1).state is State.QUEUED


@pytest.mark.everywhere
def test_the_expiry_is_an_instant_or_counted_from_when_it_is_due(jobs: Duly, send: Task[..., str]) -> None:
    moment = datetime(2090, 1, 1, tzinfo=UTC)
    at = send.using(expires=moment).enqueue(1)
    after = send.using(delay=60, expires="5m").enqueue(1)
    assert at.record.expires_at is not None
    assert from_us(at.record.expires_at) == moment
    assert after.record.expires_at is not None
    assert after.record.run_at is not None
    assert after.record.expires_at - after.record.run_at == 300_000_000


def test_the_options_of_the_task_are_the_defaults_of_its_jobs(jobs: Duly) -> None:
    @jobs.task(queue="slow", priority=40, retry=Backoff.fixed(3, max_attempts=9), timeout=12, expires=60)
    def work() -> None: ...

    job = work.enqueue()
    assert (job.queue, job.priority, job.max_attempts) == ("slow", 40, 9)
    assert job.record.timeout_us == 12_000_000
    assert job.record.expires_at == job.record.created_at + 60_000_000
    other = work.using(queue="fast", priority=0, max_attempts=2, timeout="5s", expires=None).enqueue()
    assert (other.queue, other.priority, other.max_attempts, other.record.timeout_us) == ("fast", 0, 2, 5_000_000)
    again = work.using(retry=Backoff.none()).enqueue()
    assert again.max_attempts == 1


def test_a_tenant_may_have_any_name_and_be_absent(jobs: Duly, send: Task[..., str]) -> None:
    assert send.enqueue(1).tenant is None
    assert send.using(tenant="Größe ☃ 'quoted' --").enqueue(1).tenant == "Größe ☃ 'quoted' --"


@pytest.mark.everywhere
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"deep": [[[[[{"x": None}]]]]]},
        {"text": "Größe ☃ 😀 \\u0000 \t\n \x7f %s :name '\""},
        {"numbers": [0, -1, 2**53 + 1, 2**64, -(2**63), 10**300, 0.1, 1e-300, -0.0]},
        {"": {"": ""}},
        {"b": 1, "a": 2},
        {"tab\tin\\key": True},
    ],
    ids=lambda value: str(value)[:20],
)
def test_json_values_come_back_equal(jobs: Duly, send: Task[..., str], value: dict[str, Any]) -> None:
    one = send.enqueue(1, extra=value)
    (many,) = send.enqueue_many([{"user_id": 1, "extra": value}])
    assert jobs.get(one.id).args["extra"] == value
    assert jobs.get(many.id).args["extra"] == value
    assert list(jobs.get(one.id).args["extra"]) == list(value), "the order of keys is kept"


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("B7")
@pytest.mark.parametrize("option", ["run_at", "expires"])
def test_a_naive_datetime_is_refused(jobs: Duly, send: Task[..., str], option: str) -> None:
    with pytest.raises(InvalidOption, match=f"{option}.*time zone"):
        send.using(**{option: datetime(2090, 1, 1)}).enqueue(1)  # type: ignore[arg-type]  # noqa: DTZ001
    assert stored(jobs) == 0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"delay": -1}, "delay must not be negative"),
        ({"delay": timedelta(seconds=-1)}, "delay must not be negative"),
        ({"delay": float("nan")}, "delay must be a finite"),
        ({"delay": float("inf")}, "delay must be a finite"),
        ({"delay": "1 fortnight"}, "delay is not a duration"),
        ({"delay": True}, "delay must be a timedelta"),
        ({"delay": 1e15}, "delay must be at most"),
        ({"run_at": "tomorrow"}, "run_at must be a datetime"),
        ({"run_at": date(2090, 1, 1)}, "run_at must be a datetime"),
        ({"run_at": 1_700_000_000}, "run_at must be a datetime"),
        ({"run_at": datetime(2090, 1, 1, tzinfo=UTC), "delay": 1}, "run_at or delay, not both"),
        ({"priority": 101}, "priority must be from 0"),
        ({"priority": -1}, "priority must be from 0"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": "7"}, "priority must be a whole number"),
        ({"queue": "has space"}, "queue name"),
        ({"queue": ""}, "queue name"),
        ({"tenant": "a\x00b"}, "tenant must not contain a control character"),
        ({"tenant": "\ud800"}, "tenant must not contain a lone surrogate"),
        ({"tenant": "x" * 256}, "tenant must be at most 255 bytes"),
        ({"tenant": 7}, "tenant must be text"),
        ({"tags": [""]}, "tag must not be empty"),
        ({"tags": ["a\nb"]}, "tag must not contain a control character"),
        ({"tags": [1]}, "tag must be text"),
        ({"tags": "urgent"}, "tags must be a list"),
        ({"enqueued_by": "a\x00"}, "enqueued_by must not contain"),
        ({"expires": -5}, "expires must not be negative"),
        ({"timeout": 0}, "timeout must be longer than nothing"),
        ({"timeout": -1}, "timeout must not be negative"),
        ({"max_attempts": 0}, "max_attempts must be"),
        ({"max_attempts": True}, "max_attempts must be"),
        ({"retry": 3}, "retry must be a Backoff"),
        ({"unique": ""}, "unique key must not be empty"),
        ({"unique": "a\x00b"}, "unique key must not contain NUL"),
        ({"unique": 7}, "unique must be a key"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_a_bad_option_is_refused_and_nothing_stored(sqlite_url: str, options: dict[str, Any], message: str) -> None:
    with opened(sqlite_url) as jobs:

        @jobs.task
        def work(n: int = 1) -> None: ...

        with pytest.raises(InvalidOption, match=re.escape(message)):
            work.using(**options).enqueue()
        with pytest.raises(InvalidOption, match=re.escape(message)):
            work.using(**options).enqueue_many([{"n": 1}])
        assert stored(jobs) == 0


@pytest.mark.parametrize(
    "call, path, message",
    [
        (lambda send: send.enqueue(), "user_id", "user_id"),
        (lambda send: send.enqueue(1, colour="red"), "colour", "colour"),
        (lambda send: send.enqueue(1, templat="x"), "templat", "template"),
        (lambda send: send.enqueue("1"), "user_id", "expected int"),
        (lambda send: send.enqueue(True), "user_id", "expected int"),
        (lambda send: send.enqueue(1.0), "user_id", "expected int"),
        (lambda send: send.enqueue(1, "a", None, 4), "send()", "3 positional arguments"),
        (lambda send: send.enqueue(1, user_id=2), "user_id", "given twice"),
        (lambda send: send.enqueue(1, extra={"a": {"b": [1, object()]}}), "extra.a.b[1]", "JSON cannot hold"),
        (lambda send: send.enqueue(1, extra={"a": float("nan")}), "extra.a", "nan"),
        (lambda send: send.enqueue(1, extra={1: 2}), "extra", "expected str"),
        (lambda send: send.enqueue(1, "nul \x00"), "template", "NUL"),
        (lambda send: send.enqueue(1, "\ud800"), "template", "surrogate"),
        (lambda send: send.enqueue_many([{"user_id": 1}, {"user_id": "2"}]), "user_id", "call 1"),
        (lambda send: send.enqueue_many([{"user_id": 1}, {}]), "user_id", "call 1"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_path_and_nothing_stored(
    lite: Duly, lite_send: Task[..., str], call: Callable[[Task[..., str]], object], path: str, message: str
) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)) as refused:
        call(lite_send)
    assert path in str(refused.value)
    assert stored(lite) == 0


def test_a_call_that_is_no_mapping_is_refused(lite: Duly, lite_send: Task[..., str]) -> None:
    with pytest.raises(ArgumentError, match="call 1"):
        lite_send.enqueue_many([{"user_id": 1}, 7])  # type: ignore[list-item]
    assert stored(lite) == 0


def test_a_payload_of_100_megabytes_is_refused_before_the_database(lite: Duly, lite_send: Task[..., str]) -> None:
    huge = "x" * 100_000_000
    with pytest.raises(PayloadTooLarge, match="262144") as refused:
        lite_send.enqueue(1, huge)
    assert refused.value.size > 100_000_000
    assert len(str(refused.value)) < 1000
    with pytest.raises(PayloadTooLarge, match="call 1"):
        lite_send.enqueue_many([{"user_id": 1}, {"user_id": 1, "template": huge}])
    assert stored(lite) == 0


def test_the_limit_of_the_payload_can_be_raised(database_url: str) -> None:
    with opened(database_url, max_payload="2MiB") as jobs:

        @jobs.task
        def keep(text: str) -> None: ...

        text = "ü" * 900_000
        assert jobs.get(keep.enqueue(text).id).args["text"] == text
        with pytest.raises(PayloadTooLarge):
            keep.enqueue("ü" * 1_100_000)


def test_deeply_nested_arguments_are_refused(lite: Duly, lite_send: Task[..., str]) -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(ArgumentError, match="100 levels"):
        lite_send.enqueue(1, extra={"deep": deep})
    assert stored(lite) == 0


# -- where it is stored -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url, message",
    [
        ("mysql://localhost/x", "mysql"),
        ("sqllite:///x.db", "Did you mean 'sqlite'"),
        ("postgres", "not one duly knows"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://x.db", "names no file"),
        ("", "url"),
    ],
)
def test_a_bad_address_is_refused_with_what_to_write(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        Duly(url)


def test_an_address_does_not_show_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DulyError) as refused, opened("mysql://ann:hunter2@localhost/x"):
        pass
    assert "hunter2" not in str(refused.value)


def test_an_unreachable_server_is_a_clear_error_within_seconds() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    with opened(f"postgresql://ann:hunter2@127.0.0.1:{port}/x") as jobs:

        @jobs.task
        def work() -> None: ...

        with pytest.raises(DatabaseUnavailable, match=f"cannot connect to .*{port}") as refused:
            work.enqueue()
    assert "hunter2" not in str(refused.value)


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/missing/duly.db") as jobs:

        @jobs.task
        def work() -> None: ...

        with pytest.raises(DatabaseUnavailable, match="folder"):
            work.enqueue()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_a_clear_error(tmp_path: Path) -> None:
    read_only_file_is_refused(tmp_path)


def read_only_file_is_refused(folder: Path) -> None:
    with opened(f"sqlite:///{folder}/duly.db") as jobs:

        @jobs.task
        def work() -> None: ...

        work.enqueue()
        jobs.close()
        for name in folder.iterdir():
            name.chmod(0o444)
        folder.chmod(0o555)
        try:
            with pytest.raises(DatabaseUnavailable, match=r"read-only|writable|who may write"):
                work.enqueue()
        finally:
            folder.chmod(0o755)
            for name in folder.iterdir():
                name.chmod(0o644)
        assert stored(jobs) == 1
        work.enqueue()
        assert stored(jobs) == 2


def test_a_read_only_file_is_a_clear_error_also_when_the_tests_run_as_root(tmp_path: Path) -> None:
    """In a child that has given up being root."""
    if os.geteuid() != 0:
        pytest.skip("the plain test has done it")
    folder = tmp_path / "data"
    folder.mkdir()
    for each in (tmp_path, *tmp_path.parents):
        if Path(tempfile.gettempdir()) in each.parents:
            each.chmod(each.stat().st_mode | 0o055)
    os.chown(folder, 65534, 65534)
    with opened(f"sqlite:///{tmp_path}/other.db") as other:  # what is imported late must be there before the fork
        assert stored(other) == 0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            read_only_file_is_refused(folder)
            code = 0
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "duly.db"
    path.write_text("This is a letter, not a database. " * 100)
    with opened(f"sqlite:///{path}") as jobs:

        @jobs.task
        def work() -> None: ...

        with pytest.raises(UnsupportedDatabase, match="not a"):
            work.enqueue()
    assert path.read_text().startswith("This is a letter")


def test_a_database_without_tables_names_the_command_on_postgresql(empty_database_url: str, database_kind: Any) -> None:
    with opened(empty_database_url) as jobs:

        @jobs.task
        def work() -> None: ...

        if not database_kind.is_postgres:
            assert work.enqueue().state is State.QUEUED, "SQLite makes its tables by itself"
            return
        with pytest.raises(DulyError, match="duly migrate"):
            work.enqueue()
        assert jobs.migrate()[0] == 1
        assert work.enqueue().state is State.QUEUED
