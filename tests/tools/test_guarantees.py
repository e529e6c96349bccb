"""The page of promises names tests that exist, and the numbers that the table of guards refers to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
ROWS = re.findall(r"^\| (P\d+) \| (.+?) \| (.+?) \| (.+) \|$", PAGE, re.M)


def test_each_promise_has_a_number_of_its_own() -> None:
    assert [number for number, *_ in ROWS] == [f"P{n}" for n in range(1, len(ROWS) + 1)]
    assert len(ROWS) >= 20


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_promise_names_what_backs_it(row: tuple[str, ...]) -> None:
    named = re.findall(r"`((?:tests|chaos|benchmarks)/[\w/.]+)`", row[3])
    assert named, row
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_what_guards_protect_is_promised() -> None:
    protected = set(re.findall(r"\bP\d+\b", (ROOT / "docs" / "guards.md").read_text()))
    assert protected <= {number for number, *_ in ROWS}
