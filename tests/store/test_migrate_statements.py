"""A migration is split into statements where a statement ends, and only there; parts are put into named statements."""

from __future__ import annotations

import pytest

from duly.store.call import Dialect
from duly.store.migrate import migrations, statements
from duly.store.statements import load


@pytest.mark.parametrize(
    "sql, expected",
    [
        ("", []),
        ("-- nothing; here\n;;\n", []),
        ("A; B", ["A", "B"]),
        ("A;\nB;\n", ["A", "B"]),
        ("A -- it's; a comment\nB;C", ["A \nB", "C"]),
        ("/* a; b */ A; B", ["A", "B"]),
        ("A 'x;y' ; B", ["A 'x;y'", "B"]),
        ("A 'it''s; so'; B", ["A 'it''s; so'", "B"]),
        ("A '--no comment'; B", ["A '--no comment'", "B"]),
        ('A "x;y"; B', ['A "x;y"', "B"]),
        ("A $$x; 'y; -- z\n$$; B", ["A $$x; 'y; -- z\n$$", "B"]),
        ("A $body$ $$;$$ ; $body$; B", ["A $body$ $$;$$ ; $body$", "B"]),
        ("A 3-2/1; B $1", ["A 3-2/1", "B $1"]),
    ],
)
def test_statement_ends_at_a_semicolon_outside_of_quotes_and_bodies(sql: str, expected: list[str]) -> None:
    assert statements(sql) == expected


@pytest.mark.parametrize("dialect", Dialect)
def test_every_statement_of_our_migrations_is_found_whole(dialect: Dialect) -> None:
    for step in migrations(dialect):
        begins = {tuple(statement.split()[:2]) for statement in statements(step.sql)}
        assert {first for first, _ in begins} <= {"CREATE", "DROP", "ALTER", "INSERT"}
        assert {what for first, what in begins if first == "DROP"} <= {"VIEW", "TABLE", "INDEX"}


@pytest.mark.parametrize("dialect", list(Dialect))
def test_parts_are_put_into_the_statements_that_name_them(dialect: Dialect) -> None:
    found = load(dialect)
    assert not [name for name, sql in found.items() if sql.startswith("@") or "\n@" in sql]
    if dialect is Dialect.POSTGRES:
        assert "lease_heads" not in found
        assert found["claim"].endswith(found["claim_lane"][-400:])
