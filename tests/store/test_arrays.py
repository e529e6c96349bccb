"""Array literals come back from PostgreSQL as the lists they were."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from duly.store.arrays import array_literal


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["plain"],
        [None, None],
        ["a", None, "b"],
        ['say "hi"', "back\\slash", "comma, brace {}", "", "NULL", "null", " spaces ", "new\nline", "üñí"],
        ['","', '"', "\\", '\\"'],
        ["a", "b,c"],
    ],
)
def test_texts_come_back_equal(pg_url: str, values: list[str | None]) -> None:
    with psycopg.connect(pg_url) as connection:
        row = connection.execute("SELECT %s::text[]", (array_literal(values),)).fetchone()
    assert row is not None
    assert row[0] == values


@pytest.mark.parametrize("values", [[0, -1, 2**62, None], [3], (1, -2, 2**62), [7, 7.5]])
def test_numbers_come_back_equal(pg_url: str, values: Sequence[float | None]) -> None:
    with psycopg.connect(pg_url) as connection:
        row = connection.execute("SELECT %s::float8[]", (array_literal(values),)).fetchone()
    assert row is not None
    assert row[0] == list(values)
