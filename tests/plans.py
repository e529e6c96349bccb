"""How PostgreSQL would do what an operation asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from duly.store.call import Call, Dialect, Op, Rows
from duly.store.postgres import PLANNER
from duly.store.statements import Compiled


def plans(url: str, op: Op[Any], rows: Callable[[Call], Rows] = lambda _: ()) -> dict[str, str]:
    """Explain every statement that an operation would run."""
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    found: dict[str, str] = {}
    with psycopg.connect(url, autocommit=True, options=PLANNER) as connection:
        try:
            call = next(op)
            while True:
                assert isinstance(call, Call)
                sql, _ = compiled.get(call.name)
                lines = connection.execute(f"EXPLAIN {sql}".encode(), dict(call.params)).fetchall()
                found[call.name] = "\n".join(str(line[0]) for line in lines)
                call = op.send(rows(call))
        except StopIteration:
            pass
    return found
