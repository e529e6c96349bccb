"""The examples of docs/schedules.md run, one after another, and do what the page says."""

from __future__ import annotations

import re
import runpy
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duly import Duly
from duly.testing import drain

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"
BLOCK = re.compile(r"```python\n(?P<text>.*?)```", re.DOTALL)
TABLES = """
CREATE TABLE feeds (id integer PRIMARY KEY, refreshed_at text, next_at text, failures integer);
CREATE TABLE subscribers (feed_id integer);
CREATE TABLE notes (key text, next_us integer);
INSERT INTO feeds (id, refreshed_at) VALUES (42, '2020-01-01'), (43, '2999-01-01');
INSERT INTO subscribers VALUES (42);
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the examples define, after all of them have run as one program."""
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("app.db") as connection:
        connection.executescript(TABLES)
    connection.close()
    program = tmp_path / "program.py"
    program.write_text("\n".join(block["text"] for block in BLOCK.finditer(PAGE.read_text())))
    names = runpy.run_path(str(program))
    yield names
    names["conn"].close()
    names["jobs"].close()


def rows(sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect("app.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.mark.requirement("A1", "A5", "A7", "A9", "A11", "C14")
def test_the_examples_of_the_page_do_what_it_says(page: dict[str, Any]) -> None:
    jobs: Duly = page["jobs"]
    assert page["enabled"] is False  # the last subscriber is gone
    assert not jobs.recurring_job("refresh", 42).enabled
    assert [job.key for job in jobs.recurring_jobs(task="refresh")] == ["42", "7", "8"]
    assert jobs.recurring_jobs(tenant="acme") == []  # unregistered
    [(first, failures)] = rows("SELECT next_at, failures FROM feeds WHERE id = 42")
    assert first is not None
    assert failures == 0

    drain(jobs)  # as a worker that starts: what is declared is made, what is due runs
    by_name = jobs.recurring_by_name("nightly")
    assert (by_name.task, by_name.enabled, by_name.record.declared_in) == ("clean", True, "<run_path>")
    assert jobs.recurring_job("report").record.pause_after == 5
    [(after, _)] = rows("SELECT next_at, failures FROM feeds WHERE id = 42")
    assert after > first
    assert len(rows("SELECT * FROM notes")) >= 1
    polled = jobs.recurring_job("poll")
    assert polled.enabled
    assert polled.last_outcome == "succeeded"
    assert [job.args for job in jobs.list(task="refresh", state="succeeded")] == [{"feed_id": 42}]  # swept

    jobs.recurring_job("fetch", 42).disable("enough")
    assert rows("SELECT next_at FROM feeds WHERE id = 42") == [(None,)]


def test_the_parameters_of_a_mirror_are_the_ones_in_the_table() -> None:
    from duly.domain.recurring import Change
    from duly.store.call import Dialect
    from duly.store.ops_mirrors import mirror_params

    section = PAGE.read_text().partition("| parameter | |")[2].partition("\n\n")[0]
    named = {
        name
        for line in section.splitlines()
        for name in re.findall(r"`(\w+)`", line.split("|")[1] if "|" in line else "")
    }
    change = Change("id", "", "t", "k", True, 1, None, None, 0, None)
    assert named == set(mirror_params(change, Dialect.SQLITE))
