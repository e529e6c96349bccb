"""Runs tests with guards removed: `python -m pytest -p tests.guards.plugin --without FILE TESTS...`.

FILE names guards of the table, and where to write what came of each; the tests are those of all of them together. First
every test is run as the code is, and then those of each guard without it. One session, so that a PostgreSQL server is
started once; only a guard in a migration needs databases of its own.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.guards.guard import Guard
from tests.guards.removing import Schema, removed
from tests.guards.table import GUARDS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", default="", help="a file that names guards to remove, one after the other")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--without")
    if path:
        config.pluginmanager.register(Removals(Path(path)), "removals")


class Removals:
    """The loop of the session, and what came of each test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        asked = json.loads(path.read_text())
        self._guards = [guard for guard in GUARDS if guard.name in asked["guards"]]
        self._with_all = asked.get("first", True)
        self._reds: list[str] = []
        self._report: dict[str, Any] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("some tests could not be collected")
        items = session.items
        if self._with_all:
            self._report["as it is"] = self._run(items, items, fresh=False)
        for guard in sorted(self._guards, key=_is_schema):  # those of a migration last, each by itself
            chosen = [item for item in items if any(is_of(item.nodeid, test) for test in guard.tests)]
            with removed(guard.edits):
                self._report[guard.name] = self._run(chosen, items, fresh=_is_schema(guard))
        self._path.write_text(json.dumps(self._report))
        return True

    def _run(self, chosen: Sequence[pytest.Item], items: Sequence[pytest.Item], *, fresh: bool) -> dict[str, list[str]]:
        """Run some tests. With `fresh` what a session keeps is made anew for them, and not left to others."""
        answers: dict[str, list[str]] = {}
        if fresh:
            _tear_down(items[0].session)
        for item in chosen:
            item._initrequest()  # type: ignore[attr-defined]
            self._reds = []
            # The next may be the same again: nothing is kept for it but what the session has.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=item.session)
            answers[item.nodeid] = self._reds
        if fresh:
            _tear_down(items[0].session)
        return answers

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report: Any = yield
        if report.failed and call.excinfo is not None:
            self._reds.append(f"{call.when}: {call.excinfo.exconly()}"[:2_000])
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Tests are to fail here: that is told in the file, and is not the matter of this session."""
        return ("red", "r", "RED") if report.failed else None


def is_of(nodeid: str, test: str) -> bool:
    """Whether a test is named: with its parameters, or with any."""
    return nodeid == test or nodeid.startswith(f"{test}[")


def _is_schema(guard: Guard) -> bool:
    return any(isinstance(edit, Schema) for edit in guard.edits)


def _tear_down(session: pytest.Session) -> None:
    session._setupstate.teardown_exact(None)
