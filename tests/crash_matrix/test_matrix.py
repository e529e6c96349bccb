"""Every operation of the store, every statement boundary in it, every way to fail there: all of it is done, or nothing.

In `make test` every third boundary fails, in one way after the other, and every commit is lost; in `make deep` all do,
in every way, and work goes on from what they leave.
"""

from __future__ import annotations

import pytest

from duly.store.call import Dialect
from tests.crash_matrix.exits import Exits
from tests.crash_matrix.matrix import Bench, Case
from tests.crash_matrix.modes import Mode
from tests.crash_matrix.operation import Operation
from tests.crash_matrix.operations import OPERATIONS
from tests.databases import Databases, Kind

EVERY = [pytest.param(operation, id=name) for name, operation in OPERATIONS.items()]
UNKNOWN = (Mode.CUT_AFTER_EACH, Mode.EXIT_SENT)
FEW = 30
"""How many boundaries of one operation are sampled at most; migrations have more."""


def sample(cases: list[Case], first: int) -> list[Case]:
    """Every third boundary, the modes in turn; and every commit of which nobody knows if it was."""
    chosen: list[Case] = []
    boundaries = list(dict.fromkeys(case.crossing for case in cases))
    for at, crossing in enumerate(boundaries):
        here = [case for case in cases if case.crossing == crossing]
        if (first + at) % 3 == 0:
            chosen.append(here[(first + at) // 3 % len(here)])
        chosen += [case for case in here if crossing.last and case.mode in UNKNOWN]
    return list(dict.fromkeys(chosen[:: 1 + len(chosen) // FEW]))


def fail_at(operation: Operation, kind: Kind, databases: Databases, exits: Exits, *, sampled: bool) -> None:
    if operation.only is not None and (operation.only is Dialect.POSTGRES) != kind.is_postgres:
        return
    with databases.fresh(kind, prepared=not operation.schema) as url:
        bench = Bench(operation, url, exits)
        try:
            assert bench.same_twice == (not operation.twice), "what doing it twice does is not what the table says"
            cases = bench.cases()
            if not sampled:
                bench.work_off()
            for case in sample(cases, list(OPERATIONS).index(operation.name)) if sampled else cases:
                bench.run(case)
        finally:
            bench.close()


@pytest.mark.parametrize("operation", EVERY)
def test_operation_that_fails_at_a_boundary_is_done_or_not(
    operation: Operation, database_kind: Kind, databases: Databases, exits: Exits
) -> None:
    fail_at(operation, database_kind, databases, exits, sampled=True)


@pytest.mark.deep
@pytest.mark.parametrize("operation", EVERY)
def test_operation_that_fails_in_any_way_at_a_boundary_is_done_or_not(
    operation: Operation, database_kind: Kind, databases: Databases, exits: Exits
) -> None:
    fail_at(operation, database_kind, databases, exits, sampled=False)
