"""How long `why` takes with a million jobs waiting. Needs duly installed, and a database without tables.

    python benchmarks/why.py sqlite:////tmp/why.db           about a minute each
    python benchmarks/why.py postgresql://localhost/empty
    python benchmarks/why.py URL --jobs 20000                a rehearsal: its figures mean nothing

one lane: all jobs of one task, which may run none. thousand tenants: a lane for each.
keys: 100,000 keys with two jobs each. Of each: why of the last job, why of all that waits;
the best, median and worst of ten looks, in milliseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from duly import Duly
from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import NewJob

LOOKS = 10


def fill_lane(jobs: Duly, n: int) -> str:
    """All jobs of one task, which may run none."""
    jobs.set_limit(task="send", concurrency=0)
    last = ""
    for start in range(0, n, 50_000):
        ids = uuid7_many(min(50_000, n - start))
        jobs.store.enqueue_many(
            NewJob(id=uuid7(), task="send", args="{}"), [(each, "{}", None) for each in ids]
        )
        last = ids[-1]
    return last


def fill_tenants(jobs: Duly, n: int) -> str:
    """As many jobs of each of a thousand tenants."""
    last = ""
    for tenant in range(1_000):
        ids = uuid7_many(n // 1_000)
        model = NewJob(id=uuid7(), task="send", args="{}", tenant=f"tenant {tenant:04}")
        jobs.store.enqueue_many(model, [(each, "{}", None) for each in ids])
        last = ids[-1]
    return last


def fill_keys(jobs: Duly, n: int) -> str:
    """Two jobs for each key; one is let in."""
    jobs.set_limit(keys="fetch", concurrency=1)
    ids = uuid7_many(n // 5)
    rows = [(each, "{}", None, f"fetch/{i // 2}") for i, each in enumerate(ids)]
    for start in range(0, len(rows), 50_000):
        jobs.store.enqueue_many(NewJob(id=uuid7(), task="fetch", args="{}"), rows[start : start + 50_000])
    while jobs.store.gates.admit(10_000):
        pass
    return ids[-1]


def looks(look: Callable[[], object]) -> str:
    """Look some times; say how long it took."""
    took = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        look()
        took.append((time.perf_counter() - began) * 1_000)
    return f"{min(took):6.1f} {statistics.median(took):6.1f} {max(took):6.1f}"


def measure(url: str, n: int) -> Iterator[str]:
    """Fill a database in one way after the other, and look."""
    for schema, (how, fill) in enumerate(
        (("one lane", fill_lane), ("thousand tenants", fill_tenants), ("keys", fill_keys))
    ):
        address = f"{url}.{schema}" if url.startswith("sqlite") else url
        with closing(Duly(address, schema=f"why_{schema}")) as jobs:
            jobs.migrate()
            last = fill(jobs, n)
            took = looks(lambda jobs=jobs, last=last: jobs.why(last))
            yield f"{how:18} a job  {took}   {jobs.why(last).reason}"
            groups = jobs.why_waiting()
            counts = ", ".join(
                f"{each.reason} {each.jobs:,}{'+' if each.at_least else ''}" for each in groups[:3]
            )
            yield f"{how:18} all    {looks(jobs.why_waiting)}   {len(groups)} groups: {counts}"


def main() -> None:
    """Measure on one database, which must be empty."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    given = parser.parse_args()
    for line in measure(given.url, given.jobs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
