"""How PostgreSQL carries out duly's statements: EXPLAIN ANALYZE of the claim, the settle and the look-ups.

Run as `python -m drivers.duly_plans URL`, on a database with waiting jobs of the task noop; it takes a few of
them. Prints one line of JSON: the plans by name.
"""

import json
import sys
from contextlib import suppress
from typing import Any

from duly.domain.clock import SystemClock
from duly.domain.ids import uuid7
from duly.domain.records import Lane, Settled
from duly.store.arrays import array_literal
from duly.store.postgres import PostgresDatabase
from duly.store.store import Store

N = 500
LEASE_US = 15_000_000


class Explaining(PostgresDatabase):
    """Asks for the plan of every statement while carrying it out; so it has no answers."""

    def __init__(self, url: str) -> None:
        super().__init__(url, SystemClock())
        self.plans: dict[str, str] = {}

    def _execute(self, connection: Any, call: Any) -> Any:
        sql, order = self._compiled.get(call.name)
        params = {name: value for name, value in call.params.items() if name in order}
        params = {
            name: array_literal(value) if type(value) is list else value for name, value in params.items()
        }
        explain = "EXPLAIN (ANALYZE, BUFFERS, WAL, COSTS OFF, TIMING OFF, SUMMARY ON) "
        rows = connection.execute(explain + str(sql), params).fetchall()
        self.plans[call.name] = "\n".join(str(row[0]) for row in rows)
        return [("",)] if call.name.startswith("settle") else ()  # none accepted, as far as anybody sees


def explain(url: str) -> dict[str, str]:
    explaining = Explaining(url)
    explained, store = Store(explaining), Store.open(url)
    lane, worker = Lane("", "noop"), uuid7()
    held = {"worker_id": worker, "lease_us": LEASE_US}
    store.claim("default", [lane], N, **held)  # so that what follows finds everything in the cache
    explained.claim("default", [lane], N, **held)
    jobs = store.claim("default", [lane], N, **held)
    explained.settle([Settled(job.id, job.token, "succeeded", "succeeded", ran_us=9) for job in jobs])
    explained.lanes("default")
    for look in (explained.next_due_us, explained.next_lapse_us, lambda: explained.lapsed(LEASE_US)):
        with suppress(IndexError):  # no answer
            look()
    store.close()
    explained.close()
    return explaining.plans


if __name__ == "__main__":
    print(json.dumps(explain(sys.argv[1])))
