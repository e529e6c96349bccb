"""Declaring tasks: the decorator in all its forms, names, duplicates, calling in place, options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duly import Backoff, ConfigurationError, Duly, DuplicateTask, InvalidOption, UnknownTask
from duly.worker.registry import Kind
from tests.helpers import opened


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Duly]:
    """A `Duly` on a file that nothing here needs to open."""
    with opened(f"sqlite:///{tmp_path}/duly.db") as jobs:
        yield jobs


def test_a_task_is_declared_with_and_without_parentheses(jobs: Duly) -> None:
    @jobs.task
    def bare(n: int) -> int:
        return n + 1

    @jobs.task()
    def empty(n: int) -> int:
        return n + 2

    @jobs.task(queue="mail")
    def given(n: int) -> int:
        return n + 3

    assert [task.name for task in (bare, empty, given)] == ["bare", "empty", "given"]
    assert [bare(1), empty(1), given(1)] == [2, 3, 4]
    assert [jobs.registry.get(name).queue for name in ("bare", "empty", "given")] == ["default", "default", "mail"]


def test_an_async_task_runs_on_the_loop_and_is_awaited_in_place(jobs: Duly) -> None:
    @jobs.task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @jobs.task(queue="other")
    async def triple(n: int) -> int:
        return 3 * n

    async def main() -> list[int]:
        return [await double(2), await triple(2), await double.using(priority=5)(3)]

    assert asyncio.run(main()) == [4, 6, 6]
    assert jobs.registry.get("double").kind is Kind.ASYNC


def test_an_object_with_an_async_call_runs_on_the_loop(jobs: Duly) -> None:
    class Crawl:
        __name__ = "crawl"

        async def __call__(self, url: str) -> None: ...

    jobs.task(Crawl())
    assert jobs.registry.get("crawl").kind is Kind.ASYNC


def test_a_partial_of_an_async_function_runs_on_the_loop(jobs: Duly) -> None:
    async def crawl(depth: int, url: str) -> None: ...

    jobs.task(name="crawl")(partial(partial(crawl, 3), url="x"))
    assert jobs.registry.get("crawl").kind is Kind.ASYNC

    job = jobs.register("acme", "crawl", datetime(2026, 1, 1, tzinfo=UTC), "1h", partial(crawl, 3))
    assert jobs.registry.registered["acme", job.task].kind is Kind.ASYNC


def test_calling_a_task_runs_it_here_and_stores_nothing(jobs: Duly, tmp_path: Path) -> None:
    @jobs.task(retry=Backoff.none())
    def divide(a: int, b: int = 2) -> float:
        return a / b

    assert divide(6) == 3
    assert divide(6, b=3) == 2
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)
    assert not (tmp_path / "duly.db").exists()


def test_a_task_looks_like_its_function(jobs: Duly) -> None:
    @jobs.task
    def described() -> None:
        """Do what it says."""

    assert described.__doc__ == "Do what it says."
    assert getattr(described, "__name__") == "described"  # noqa: B009 - wrapped at run time
    assert described.__module__ == __name__
    assert repr(described) == "<Task described>"


def test_a_task_may_have_another_name(jobs: Duly) -> None:
    @jobs.task(name="mail.send:v2")
    def send() -> None: ...

    assert send.name == "mail.send:v2"
    assert jobs["mail.send:v2"].name == "mail.send:v2"
    with pytest.raises(UnknownTask):
        jobs["send"]


@pytest.mark.parametrize("name", ["with space", "a/b", "x" * 129, "naïve", "a\x00b"])
def test_a_bad_name_is_refused(jobs: Duly, name: str) -> None:
    with pytest.raises(InvalidOption, match="task name"):
        jobs.task(name=name)(lambda: None)


def test_a_function_without_a_usable_name_needs_one(jobs: Duly) -> None:
    with pytest.raises(InvalidOption, match="<lambda>"):
        jobs.task(lambda: None)


def test_two_functions_of_one_name_are_refused(jobs: Duly) -> None:
    def make(n: int) -> Callable[[], int]:
        if n == 1:

            def work() -> int:
                return 1
        else:

            def work() -> int:
                return 2

        return work

    jobs.task(make(1))
    with pytest.raises(DuplicateTask, match=r"work.*name="):
        jobs.task(make(2))


def test_the_same_function_may_register_again_as_when_its_module_is_reloaded(jobs: Duly) -> None:
    def make() -> Callable[[], int]:
        def work() -> int:
            return 1

        return work

    jobs.task(make())
    jobs.task(make())
    assert list(jobs.registry.tasks) == ["work"]


def test_an_unknown_task_is_named_with_the_nearest(jobs: Duly) -> None:
    @jobs.task
    def send_welcome() -> None: ...

    with pytest.raises(UnknownTask, match=r"send_welcom.*Did you mean 'send_welcome'"):
        jobs.enqueue("send_welcom")


def test_two_objects_know_nothing_of_each_others_tasks(jobs: Duly, tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/other.db") as other:

        @jobs.task
        def work() -> None: ...

        with pytest.raises(UnknownTask):
            other["work"]


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "no spaces"},
        {"priority": 101},
        {"priority": -1},
        {"priority": True},
        {"priority": "high"},
        {"timeout": -1},
        {"timeout": 0},
        {"timeout": "soon"},
        {"expires": timedelta(0)},
        {"concurrency": 0},
        {"concurrency": 1.5},
        {"isolation": "container"},
        {"retry": 3},
        {"on_failure": "mail me"},
    ],
    ids=repr,
)
def test_a_bad_option_is_refused_at_declaration(jobs: Duly, options: dict[str, Any]) -> None:
    def work() -> None: ...

    with pytest.raises(InvalidOption, match=next(iter(options))):
        jobs.declare(work, options)
    assert not jobs.registry.tasks


def test_an_unknown_option_is_refused_with_the_nearest(jobs: Duly) -> None:
    with pytest.raises((InvalidOption, TypeError), match="quueue"):
        jobs.task(quueue="mail")(lambda: None)  # type: ignore[call-overload]


def test_something_that_is_no_function_is_refused(jobs: Duly) -> None:
    with pytest.raises(ConfigurationError, match=r"@jobs\.task"):
        jobs.task("mail")  # type: ignore[call-overload]


def test_options_given_later_win_and_leave_the_task_alone(jobs: Duly) -> None:
    @jobs.task(priority=10)
    def work(n: int) -> None: ...

    first = work.using(priority=20, tenant="acme")
    second = first.using(priority=30)
    assert work._template().priority == 10
    assert (first._template().priority, first._template().tenant) == (20, "acme")
    assert (second._template().priority, second._template().tenant) == (30, "acme")
    assert work.using(priority=0)._template().priority == 0
    assert second.name == "work"
