"""What the statements of an operation read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from duly.store.call import Call, Dialect, Op
from duly.store.postgres import PLANNER
from duly.store.statements import Compiled


class Read(NamedTuple):
    """What one statement read: pages on PostgreSQL, steps of SQLite's machine; which tables it went through whole."""

    amount: int
    scanned: set[str]
    plan: str


def on_postgres(url: str, op: Op[Any]) -> dict[str, Read]:
    """Run an operation, see what each statement reads, and undo it."""
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    found: dict[str, Read] = {}
    with psycopg.connect(url, options=PLANNER) as connection:
        rows: Any = None
        while True:
            try:
                call = next(op) if rows is None else op.send(rows)
            except StopIteration:
                break
            assert isinstance(call, Call)
            sql, order = compiled.get(call.name)
            params = {name: call.params[name] for name in order}
            connection.execute("SAVEPOINT before")
            text = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}"
            explained = connection.execute(text.encode(), params).fetchone()
            connection.execute("ROLLBACK TO before")
            assert explained is not None
            plan = explained[0][0]["Plan"]
            shown = json.dumps(explained[0], indent=1)
            found[call.name] = Read(pages_of(plan), set(scanned_whole(plan)), shown)
            cursor = connection.execute(sql.encode(), params)
            given = cursor.fetchall() if cursor.description else []
            rows = [tuple(str(value) if isinstance(value, UUID) else value for value in row) for row in given]
        connection.rollback()
    return found


def pages_of(plan: dict[str, Any]) -> int:
    """The pages of a statement and of its parts (WITH), those that nobody reads from among them."""
    own = int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return own + sum(pages_of(part) for part in plan.get("Plans", []) if "CTE" in part.get("Subplan Name", ""))


def scanned_whole(plan: dict[str, Any]) -> Iterator[str]:
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"]
    for part in plan.get("Plans", []):
        yield from scanned_whole(part)
