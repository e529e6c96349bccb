"""The pytest plugin, as users meet it: fixtures by name, no cost and no noise for those who do not use them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.testing.conftest import SOURCE, RunPytest

APP = """
    from duly import Duly

    jobs = Duly("sqlite:///real.db")

    @jobs.task
    def double(n: int) -> int:
        return 2 * n
"""


def test_fixtures_give_an_empty_application_by_a_clock_that_stands(
    pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    pytester.makepyfile(
        """
        from duly.testing import TestClock

        def test_one(duly_jobs, duly_clock, duly_drain):
            @duly_jobs.task
            def double(n: int) -> int:
                return 2 * n

            assert isinstance(duly_clock, TestClock) and duly_jobs.clock is duly_clock
            job = double.using(delay="1h").enqueue(21)
            assert not duly_drain()
            duly_clock.advance("1h")
            assert duly_drain(raise_errors=True).succeeded == 1
            assert job.result() == 42

        def test_two(duly_jobs):
            assert duly_jobs.list() == []
            assert not duly_jobs.registry.tasks
        """
    )
    run_pytest().assert_outcomes(passed=2)
    assert not list(pytester.path.glob("*.db*"))


def test_the_application_named_in_the_ini_file_is_put_on_a_temporary_database(
    pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    pytester.makeini("[pytest]\nduly_app = shop:jobs\n")
    pytester.makepyfile(shop=APP)
    pytester.makepyfile(
        """
        import pytest
        import shop

        @pytest.mark.parametrize("turn", [1, 2])
        def test_shop(duly_jobs, duly_drain, turn):
            assert duly_jobs is shop.jobs
            job = shop.double.enqueue(21)
            assert len(duly_jobs.list()) == 1
            assert duly_drain().succeeded == 1
            assert job.result() == 42

        def test_afterwards():
            assert shop.jobs.settings.url == "sqlite:///real.db"
        """
    )
    run_pytest().assert_outcomes(passed=3)
    assert not list(pytester.path.glob("*.db*"))


@pytest.mark.parametrize(
    "named, message",
    [
        ("shop:nothing", "*duly_app = 'shop:nothing' cannot be loaded: *no attribute 'nothing'*"),
        ("shopp:jobs", "*duly_app = 'shopp:jobs' cannot be loaded: No module named 'shopp'*"),
        ("shop:double", "*duly_app = 'shop:double' is a Task, not a Duly. Write module:attribute*"),
        ("shop", "*duly_app = 'shop' is a module, not a Duly. Write module:attribute*"),
    ],
)
def test_an_application_that_cannot_be_found_is_named(
    pytester: pytest.Pytester, run_pytest: RunPytest, named: str, message: str
) -> None:
    pytester.makeini(f"[pytest]\nduly_app = {named}\n")
    pytester.makepyfile(shop=APP)
    pytester.makepyfile("def test_shop(duly_jobs): ...")
    result = run_pytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_the_clock_can_be_overridden(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    pytester.makepyfile(
        """
        from datetime import UTC, datetime

        import pytest
        from duly.testing import TestClock

        NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

        @pytest.fixture
        def duly_clock():
            return TestClock(NOON)

        def test_noon(duly_jobs):
            @duly_jobs.task
            def note(): ...

            assert note.enqueue().created_at == NOON
        """
    )
    run_pytest().assert_outcomes(passed=1)


def test_a_failing_assertion_shows_what_is_there_and_not_our_code(
    pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    pytester.makepyfile(
        """
        from duly.testing import assert_enqueued, assert_not_enqueued

        def test_missing(duly_jobs):
            @duly_jobs.task
            def note(n: int): ...

            note.enqueue(1)
            assert_enqueued(duly_jobs, note, args={"n": 2})

        def test_unwanted(duly_jobs):
            @duly_jobs.task
            def note(n: int): ...

            note.enqueue(1)
            assert_not_enqueued(duly_jobs, note)
        """
    )
    result = run_pytest()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["E*no job enqueued: note(n=2)", "E*note(n=1), queue 'default'  <- n is 1"])
    result.stdout.no_fnmatch_line("*asserts.py*")


def test_those_who_do_not_use_it_import_nothing_and_see_nothing(
    pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_other():
            ours = {name for name in sys.modules if name.split(".")[0] == "duly"}
            assert ours <= {"duly", "duly.__about__", "duly._lazy", "duly.testing", "duly.testing.plugin"}
        """
    )
    result = run_pytest("-q", apart=True)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*duly*")


def test_pytest_finds_it_by_itself_where_duly_is_installed() -> None:
    project = tomllib.loads((Path(SOURCE).parent / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"duly": "duly.testing.plugin"}


def test_it_imports_in_less_than_five_milliseconds() -> None:
    program = (
        "import pytest, time; began = time.perf_counter(); import duly.testing.plugin;"
        " print(time.perf_counter() - began)"
    )

    def seconds() -> float:
        answer = subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True
        )
        return float(answer.stdout)

    assert min(seconds() for _ in range(5)) < 0.005
