"""The table is whole: no method that writes is missing, and every statement that writes is crossed."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator

import pytest

from duly.store import ops_alerts, ops_repair, ops_tokens
from duly.store.call import Dialect
from duly.store.caps import Caps
from duly.store.completions import Completions
from duly.store.gates import Gates
from duly.store.ops_recurring import Recurring
from duly.store.statements import load
from duly.store.store import Store
from duly.store.tenant import TenantStore
from tests.crash_matrix.count import survey
from tests.crash_matrix.operations import OPERATIONS
from tests.databases import Databases, Kind

FOREIGN = {"lock_to_write"}
CLASSES = (Store, Gates, Caps, Completions, TenantStore)
WRITES = {"write", "_one", "migrate"}
COVERED = {name for operation in OPERATIONS.values() for name in operation.of}
ELSEWHERE = {
    "Recurring.find": "reads",
    "Recurring.find_name": "reads",
    "Recurring.get": "reads",
    "Recurring.lock": "a part of others",
    "Recurring.mirror": "a part of others",
    "Recurring.mirror_with": "a part of others",
    "Recurring.put_back": "a part of a repair",
}


def methods(owner: type) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Those of a class, and of the classes that it is made of."""
    for part in (each for each in inspect.getmro(owner) if each is not object):
        for node in ast.parse(textwrap.dedent(inspect.getsource(part))).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                yield node.name, node


def calls(node: ast.FunctionDef) -> set[str]:
    """The names of everything that is called as an attribute."""
    found = (each for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute))
    return {each.func.attr for each in found}  # type: ignore[attr-defined]


def writers(owner: type) -> set[str]:
    """The methods that write, themselves or by another of their own that does."""
    called = {name: calls(node) for name, node in methods(owner)}
    found: set[str] = set()
    while more := {name for name, names in called.items() if names & (WRITES | found)} - found:
        found |= more
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("owner", CLASSES, ids=lambda each: each.__name__)
def test_every_method_that_writes_is_in_the_table(owner: type) -> None:
    missing = {f"{owner.__name__}.{name}" for name in writers(owner)} - COVERED
    assert not missing, f"add an operation to tests/crash_matrix for {', '.join(sorted(missing))}"


def test_every_operation_on_recurring_jobs_is_in_the_table() -> None:
    missing = (
        {f"Recurring.{name}" for name, _ in methods(Recurring) if not name.startswith("_")} - COVERED - {*ELSEWHERE}
    )
    assert not missing, f"add an operation to tests/crash_matrix for {', '.join(sorted(missing))}"


@pytest.mark.parametrize("module", [ops_alerts, ops_tokens, ops_repair], ids=lambda each: each.__name__)
def test_every_operation_without_a_method_is_in_the_table(module: object) -> None:
    """Those that write: their statements are not all reads; and every repair."""
    name = str(getattr(module, "__name__", "")).rpartition(".")[2]
    writing = writing_statements(Dialect.SQLITE) | writing_statements(Dialect.POSTGRES)
    missing = []
    for node in ast.parse(inspect.getsource(module)).body:  # type: ignore[arg-type]
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            texts = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            repairs = module is ops_repair and any(
                isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node)
            )
            if (repairs or texts & writing) and f"{name}.{node.name}" not in COVERED:
                missing.append(f"{name}.{node.name}")
    assert not missing, f"add an operation to tests/crash_matrix for {', '.join(missing)}"


def test_the_table_names_nothing_that_is_not_there() -> None:
    owners = {each.__name__: each for each in (*CLASSES, Recurring)}
    for name in COVERED:
        owner, _, method = name.partition(".")
        if owner in owners:
            assert hasattr(owners[owner], method), f"there is no {name}"


@pytest.mark.deep
def test_every_statement_that_writes_is_crossed(databases: Databases, database_kind: Kind) -> None:
    """By some operation; those of the application's own transactions are in `tests/foreign`."""
    crossed = {name for counted in survey(databases, database_kind).values() for name in counted.statements}
    wanted = writing_statements(Dialect.POSTGRES if database_kind.is_postgres else Dialect.SQLITE)
    missing = wanted - crossed - FOREIGN
    assert not missing, f"no operation of tests/crash_matrix crosses {', '.join(sorted(missing))}"


def writing_statements(dialect: Dialect) -> set[str]:
    pattern = re.compile(r"\b(INSERT INTO|UPDATE duly|DELETE FROM)\b", re.I)
    return {name for name, sql in load(dialect).items() if pattern.search(re.sub(r"--[^\n]*", "", sql))}
