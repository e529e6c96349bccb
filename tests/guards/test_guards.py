"""Every guard, removed, turns its tests red: that is what shows that the tests have teeth."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from duly.store import statements
from duly.store.call import Dialect
from duly.store.sqlite import DESKS
from duly.store.statements import Compiled
from tests.guards.exceptions import EXCEPTIONS
from tests.guards.guard import Guard
from tests.guards.plugin import is_of
from tests.guards.removing import Edit, Entry, NotThere, Statement, cut, removed
from tests.guards.seeking import Found, Seeker
from tests.guards.table import GUARDS, reds
from tests.store.raw import Raw
from tools import guards as guards_page

ROOT = Path(__file__).resolve().parents[2]
SHARES = 9
SAMPLE = (
    "settle: token (SQLite)",
    "settle: token (PostgreSQL)",
    "lock_run: token (SQLite)",
    "gate_room(): lock",
    "lock_unstarted: lock in waiting",
    "keep_token: the fence stays",
    "Keeper._fence(): stops a run before its lease ends",
    "SQLite: BEGIN IMMEDIATE around every operation",
    "unique: schedules by key (SQLite)",
    "row-level security: jobs",
)
"""Some of each kind, tried whenever the tests are run."""


# -- the table ------------------------------------------------------------------------------------------------


def test_each_guard_has_a_name_of_its_own_and_a_test_and_each_test_is_for_a_guard() -> None:
    names = [guard.name for guard in GUARDS]
    assert len(names) == len(set(names))
    assert set(reds()) == set(names)
    assert set(SAMPLE) <= set(names)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_where_the_table_says(guard: Guard) -> None:
    with removed(guard.edits):
        pass


def test_a_guard_that_is_not_there_any_more_is_missed() -> None:
    for edit in (Statement("settle [postgres]", "AND no_such_text"), Statement("no_such_statement", "x")):
        with pytest.raises(NotThere), removed([edit]):
            pass
    with pytest.raises(NotThere):
        cut("a b a", "a", "", 1, "here")


def test_all_is_as_it_was_afterwards() -> None:
    before = {dialect: dict(statements.load(dialect)) for dialect in Dialect}
    for guard in GUARDS[:5]:
        with removed(guard.edits):
            assert {dialect: statements.load(dialect) for dialect in Dialect} != before
    assert {dialect: statements.load(dialect) for dialect in Dialect} == before


# -- nothing is left out --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeker() -> Seeker:
    return Seeker()


def excepted(found: Found) -> bool:
    return any(text in found.line for text in EXCEPTIONS.get(found.where, {}))


def test_whatever_looks_like_a_guard_is_in_the_table_or_excepted_with_a_reason(seeker: Seeker) -> None:
    edits = [edit for guard in GUARDS for edit in guard.edits if not isinstance(edit, Entry)]
    covered = {found: any(seeker.covers(edit, found) for edit in edits) for found in seeker.guard_like()}
    assert len(covered) > 250, "the search finds what it should"
    assert [str(found) for found, is_covered in covered.items() if not is_covered and not excepted(found)] == []


def test_each_exception_is_still_needed(seeker: Seeker) -> None:
    found = list(seeker.guard_like())
    for where, texts in EXCEPTIONS.items():
        for text in texts:
            assert any(each.where == where and text in each.line for each in found), f"{where}: {text}"


# -- what is left can be run ----------------------------------------------------------------------------------


def test_what_is_left_of_each_statement_can_be_prepared(raw: Raw) -> None:
    """Else a test would go red because of an error in the text, and not because the guard is missing."""
    dialect = Dialect.POSTGRES if raw.is_postgres else Dialect.SQLITE
    whole, seen = dict(statements.load(dialect)), 0
    some = [guard for guard in GUARDS if any(is_said(edit, dialect) for edit in guard.edits)]
    with closing(Preparing(raw.url)) as preparing:
        for guard in some:
            with removed(guard.edits):
                for name, text in statements.load(dialect).items():
                    if text != whole[name]:
                        preparing.prepare(name)
                        seen += 1
    assert seen > 50


def is_said(edit: Edit, dialect: Dialect) -> bool:
    return isinstance(edit, Statement) and ("[" not in edit.name or f"[{dialect}]" in edit.name)


class Preparing:
    """A connection on which statements are prepared, and not run."""

    def __init__(self, url: str) -> None:
        self._is_postgres = url.startswith("postgresql:")
        self._lite = sqlite3.connect(":memory:" if self._is_postgres else url.removeprefix("sqlite:///"))
        for table in DESKS:
            self._lite.execute(table)
        self._postgres = psycopg.connect(url, autocommit=True) if self._is_postgres else None

    def prepare(self, name: str) -> None:
        if self._postgres is None:
            text, order = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False).get(name)
            self._lite.execute(f"EXPLAIN {text}", (None,) * len(order))
        else:
            text, _ = Compiled(Dialect.POSTGRES, "dollar", "duly", server_clock=True).get(name)
            answer = self._postgres.pgconn.prepare(b"", text.encode())
            assert answer.status == 1, f"{name}: {answer.error_message.decode()}"

    def close(self) -> None:
        self._lite.close()
        if self._postgres is not None:
            self._postgres.close()


# -- every one is red -----------------------------------------------------------------------------------------


def run_without(guards: Sequence[Guard], folder: Path) -> dict[str, dict[str, list[str]]]:
    """Run the tests of some guards as the code is, and then without each. Returns by guard and test what went wrong."""
    told = folder / "guards.json"
    told.write_text(json.dumps({"guards": [guard.name for guard in guards]}))
    tests = sorted({test.partition("[")[0] for guard in guards for test in guard.tests})
    options = [
        "-q",
        "-m",
        "",
        "--timeout",
        "60",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-W",
        "ignore::ResourceWarning",
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "tests.guards.plugin", "--without", str(told), *options, *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    report: dict[str, dict[str, list[str]]] = json.loads(told.read_text())
    assert "as it is" in report, done.stdout + done.stderr
    return report


def judge(guards: Sequence[Guard], report: dict[str, dict[str, list[str]]]) -> list[str]:
    """What is wrong: a test that is red as the code is, or not red, or for another reason, without its guard."""
    wrong = [f"red as the code is: {test}: {why[0]}" for test, why in report["as it is"].items() if why]
    for guard in guards:
        for test in guard.tests:
            found = {name: why for name, why in report[guard.name].items() if is_of(name, test)}
            if not found:
                wrong.append(f"{guard.name}: there is no test {test}")
            for name, why in found.items():
                if not why:
                    wrong.append(f"{guard.name}: removed, and {name} is green")
                elif not re.search(guard.red, why[0]):
                    wrong.append(f"{guard.name}: {name} is red for another reason: {why[0]}")
    return wrong


def test_some_guards_of_each_kind_removed_turn_their_tests_red(tmp_path: Path) -> None:
    guards = [guard for guard in GUARDS if guard.name in SAMPLE]
    assert judge(guards, run_without(guards, tmp_path)) == []


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(SHARES))
def test_every_guard_removed_turns_its_tests_red(tmp_path: Path, share: int) -> None:
    guards = GUARDS[share::SHARES]
    assert judge(guards, run_without(guards, tmp_path)) == []


def test_the_page_is_what_the_table_says() -> None:
    assert guards_page.PAGE.read_text(encoding="utf-8") == guards_page.page(), "run: python -m tools.guards"
