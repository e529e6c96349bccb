"""Single enqueues beside a bare INSERT of the same columns, in slices that take turns within one process.

The bare side: psycopg, one connection, autocommit, prepared; one row with the columns of duly's `jobs` and
`waiting` together and the values of a job that duly has just stored, into one table that has nothing but a
primary key.
"""

import argparse
import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.string import TextLoader

from duly import Duly


def noop(n: int) -> None: ...


def duly_enqueuer(url: str) -> Callable[[int], object]:
    task = Duly(url).task(noop)
    return lambda number: task.enqueue(n=number)


def bare_enqueuer(url: str) -> Callable[[int], object]:
    """Make the bare table from the job that is waiting now, and return what inserts one more such row."""
    connection = psycopg.connect(url, autocommit=True)
    for kind in ("json", "jsonb"):
        connection.adapters.register_loader(kind, TextLoader)
    schema = _schema_of_duly(connection)
    jobs, waiting = sql.Identifier(schema, "jobs"), sql.Identifier(schema, "waiting")
    stored = dict.fromkeys(_columns(connection, waiting), "w")
    stored.update(dict.fromkeys(_columns(connection, jobs), "j"))
    columns = sql.SQL(", ").join(sql.Identifier(alias, column) for column, alias in stored.items())
    select = sql.SQL("SELECT {} FROM {} j JOIN {} w USING (id) LIMIT 1").format(columns, jobs, waiting)
    row = connection.execute(select).fetchone()
    assert row is not None
    values: list[Any] = list(row)
    connection.execute(sql.SQL("CREATE TABLE bare AS {} WITH NO DATA").format(select))
    connection.execute("ALTER TABLE bare ADD PRIMARY KEY (id)")
    insert = f"INSERT INTO bare VALUES ({', '.join(['%s'] * len(values))})"
    at = list(stored).index("id")
    ids = count(int(values[at]))

    def insert_one(number: int) -> None:
        values[at] = UUID(int=next(ids))
        connection.execute(insert, values, prepare=True)

    return insert_one


def _schema_of_duly(connection: psycopg.Connection[Any]) -> str:
    found_by = "SELECT schemaname FROM pg_tables WHERE tablename IN ('jobs', 'waiting') GROUP BY 1"
    found = connection.execute(found_by).fetchone()
    if found is None:
        raise SystemExit("no schema here has the tables `jobs` and `waiting`")
    return str(found[0])


def _columns(connection: psycopg.Connection[Any], table: sql.Identifier) -> list[str]:
    cursor = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table))
    return [column.name for column in cursor.description or ()]


def rate(enqueue: Callable[[int], object], times: int) -> float:
    started = time.perf_counter()
    for number in range(times):
        enqueue(number)
    return times / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--slices", type=int, required=True)
    parser.add_argument("--per-slice", type=int, required=True)
    options = parser.parse_args()

    duly = duly_enqueuer(options.url)
    rate(duly, 50)
    bare = bare_enqueuer(options.url)
    rate(bare, 50)
    slices: dict[str, list[float]] = {"duly": [], "bare": []}
    for number in range(options.slices):
        turns = [("duly", duly), ("bare", bare)]
        for name, enqueue in turns if number % 2 else reversed(turns):
            slices[name].append(rate(enqueue, options.per_slice))
    print(json.dumps(slices), flush=True)


if __name__ == "__main__":
    main()
