"""Counts the matrix: `python -m tests.crash_matrix.count` prints a table in Markdown; `--totals` its last lines."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from duly.store.call import Dialect
from tests.crash_matrix.exits import Exits
from tests.crash_matrix.matrix import Bench, deterministic
from tests.crash_matrix.operation import Operation
from tests.crash_matrix.operations import OPERATIONS
from tests.databases import Databases, Kind


class Counted(NamedTuple):
    """One operation on one kind of database, undisturbed."""

    operation: Operation
    boundaries: int
    cases: int
    statements: frozenset[str]
    answers_otherwise: bool
    """Whether the second time the answer is another."""


def survey(databases: Databases, kind: Kind) -> dict[str, Counted]:
    """Do every operation once, and see which boundaries it crosses."""
    exits, found = Exits(), {}
    for name, operation in OPERATIONS.items():
        if operation.only is not None and (operation.only is Dialect.POSTGRES) != kind.is_postgres:
            continue
        with databases.fresh(kind, prepared=not operation.schema) as url:
            bench = Bench(operation, url, exits)
            crossed = bench.course.crossed
            statements = frozenset(each.statement for each in crossed)
            otherwise = bench.answers[0] != bench.answers[1]
            found[name] = Counted(operation, len(crossed), len(bench.cases()), statements, otherwise)
            bench.close()
    return found


def markdown(sqlite: dict[str, Counted], postgres: dict[str, Counted]) -> list[str]:
    """The table, and what it comes to."""
    lines = [
        "| operation | SQLite: boundaries | cases | PostgreSQL: boundaries | cases | done twice |",
        "|---|---|---|---|---|---|",
    ]
    for name, operation in OPERATIONS.items():
        here = [each[name] for each in (sqlite, postgres) if name in each]
        cells = [
            f"{each[name].boundaries} | {each[name].cases}" if name in each else " | " for each in (sqlite, postgres)
        ]
        twice = operation.forgone or operation.twice or operation.note
        twice = twice or ("the same; the answer says that it was done" if here[0].answers_otherwise else "the same")
        lines.append(f"| {name} | {' | '.join(cells)} | {twice} |")
    return lines


def totals(sqlite: dict[str, Counted], postgres: dict[str, Counted]) -> list[str]:
    lines = [f"{len(OPERATIONS)} operations"]
    for name, found in (("SQLite", sqlite), ("PostgreSQL", postgres)):
        boundaries, cases = sum(each.boundaries for each in found.values()), sum(each.cases for each in found.values())
        lines.append(f"{name}: {boundaries} boundaries, {cases} cases")
    return lines


def main() -> None:
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, deterministic():
        databases = Databases(Path(folder))
        try:
            sqlite, postgres = survey(databases, Kind.SQLITE), survey(databases, Kind.PG18)
        finally:
            databases.close()
    if "--totals" not in sys.argv:
        print("\n".join(markdown(sqlite, postgres)), end="\n\n")
    print("\n".join(totals(sqlite, postgres)))


if __name__ == "__main__":
    main()
