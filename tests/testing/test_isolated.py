"""`isolated`: an application on another database for a while, and back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from duly import Duly
from duly.domain.recurring import Change
from duly.store.store import Store
from duly.testing import TestClock, drain, enqueued, isolated


@pytest.fixture
def app(tmp_path: Path) -> Duly:
    return Duly(f"sqlite:///{tmp_path / 'real.db'}")


def test_the_applications_own_database_is_not_touched(app: Duly, tmp_path: Path) -> None:
    @app.task
    def note() -> None: ...

    with isolated(app) as same:
        assert same is app
        note.enqueue()
        assert drain(app).succeeded == 1
    assert list(tmp_path.iterdir()) == []


def test_afterwards_everything_is_as_before_even_if_the_test_failed(app: Duly) -> None:
    before = (app.settings, app.clock, app.store)

    def fail() -> None:
        with isolated(app, clock=TestClock()):
            assert app.store is not before[2]
            assert app.settings.url != before[0].url
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (app.settings, app.clock, app.store) == before


def test_each_time_is_a_new_database(app: Duly) -> None:
    @app.task
    def note() -> None: ...

    for _ in range(2):
        with isolated(app):
            note.enqueue()
            assert len(enqueued(app)) == 1


def test_it_can_be_nested(app: Duly) -> None:
    @app.task
    def note() -> None: ...

    with isolated(app):
        note.enqueue()
        with isolated(app):
            assert enqueued(app) == []
        assert len(enqueued(app)) == 1


def test_the_clock_is_the_applications_own_unless_one_is_given(app: Duly) -> None:
    own, clock = app.clock, TestClock()
    with isolated(app):
        assert app.clock is own
    with isolated(app, clock=clock):
        assert app.clock is clock
        assert app.store.now_us() == clock.now_us()


def test_the_temporary_file_is_gone_afterwards(app: Duly) -> None:
    with isolated(app):
        app.counts()
        path = Path(app.settings.url.removeprefix("sqlite:///"))
        assert path.exists()
    assert not path.parent.exists()


def test_a_database_that_is_given_gets_its_tables_and_keeps_its_rows(app: Duly, empty_database_url: str) -> None:
    @app.task
    def note() -> None: ...

    with isolated(app, empty_database_url, TestClock()):
        job = note.enqueue()
        assert app.settings.url == empty_database_url
    store = Store.open(empty_database_url)
    assert store.get(job.id) is not None
    store.close()


def test_a_worker_can_run_in_it(app: Duly) -> None:
    @app.task
    def answer() -> int:
        return 42

    with isolated(app), app.worker():
        assert answer.enqueue().wait(10) == 42


@pytest.mark.requirement("A11")
def test_mirror_hooks_see_the_changes_in_it(app: Duly) -> None:
    seen: list[tuple[str, bool]] = []

    @app.task
    def watch(what: str) -> timedelta:
        return timedelta(hours=1)

    @app.mirror_hook(watch)
    def note(change: Change, execute: object) -> None:
        seen.append((change.key, change.enabled))

    with isolated(app):
        watch.recur("sky", args={"what": "sky"}).disable()

    assert seen == [("sky", True), ("sky", False)]
