"""Streams many new jobs into PostgreSQL by COPY, in blocks that are written while the server works on those before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from duly.domain.records import NewJob
from duly.store.call import CopyIn, Op
from duly.store.fresh import Fresh, Plan, limit_key

BLOCK = 128 * 1024
"""About how many characters are sent at once: libpq would cut larger ones up, and they leave the processor's cache."""
SHORT_LINE = 128
"""About as many characters as a line has without arguments."""

Lines = Callable[[Sequence[Fresh]], list[str]]

JOBS = (
    "id, task, queue, tenant, args, priority, max_attempts, retry, timeout_us, expires_at, created_at, "
    "enqueued_by, unique_key, tags, headers, limit_key"
)
WAITING = "queue, suspect, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold"
ARRIVED = "id, queue, tenant, task, run_at, priority, hold, parked_at, reason, mark, rank"
SCHEDULED = "id, run_at, queue, tenant, task, priority, token, attempt, crashes, hold"


def copy_jobs(model: NewJob, rows: Sequence[Fresh], plan: Plan) -> Op[None]:
    """Store jobs that are new: what they are first, then their places."""
    yield CopyIn("jobs", JOBS, _jobs(model, rows, plan))
    queue, tenant, task = (field(each) for each in (model.queue, model.tenant, model.task))
    if plan.run_at > plan.now:
        later = f"\t{plan.run_at}\t{queue}\t{tenant}\t{task}\t{model.priority}\t0\t0\t0\t0\n"
        yield CopyIn("scheduled", SCHEDULED, _places(rows, lambda some: [row[0] + later for row in some]))
        return
    plain = [row for row in rows if limit_key(row) is None]
    if plain:
        lane = f"{queue}\t0\t{tenant}\t{task}\t{plan.rank}\t"
        due = f"\t{plan.run_at}\t{model.priority}\t0\t0\t0\t0\n"
        yield CopyIn("waiting", WAITING, _places(plain, lambda some: [lane + row[0] + due for row in some]))
    if len(plain) < len(rows):
        keyed = [row for row in rows if limit_key(row) is not None]
        aside = f"\t{queue}\t{tenant}\t{task}\t{plan.run_at}\t{model.priority}\t0\t{plan.now}\tarrived\t"
        rank = f"\t{plan.rank}\n"
        lines = _places(keyed, lambda some: [row[0] + aside + field(limit_key(row)) + rank for row in some])
        yield CopyIn("parked", ARRIVED, lines)


def _jobs(model: NewJob, rows: Sequence[Fresh], plan: Plan) -> Iterator[str]:
    before = "\t" + "\t".join(map(field, (model.task, model.queue, model.tenant))) + "\t"
    options = (model.priority, model.max_attempts, model.retry, model.timeout_us, plan.expires_at, plan.now)
    after = "\t" + "\t".join(map(field, (*options, model.enqueued_by))) + "\t"
    end = f"\t{field(model.tags)}\t{field(model.headers)}\t"

    def lines(some: Sequence[Fresh]) -> list[str]:
        return [
            row[0] + before + field(row[1]) + after + field(row[2]) + end + field(limit_key(row)) + "\n" for row in some
        ]

    arguments = sum(len(row[1]) for row in rows) // max(1, len(rows))
    return _blocks(rows, SHORT_LINE + arguments, lines)


def _places(rows: Sequence[Fresh], lines: Lines) -> Iterator[str]:
    return _blocks(rows, SHORT_LINE, lines)


def _blocks(rows: Sequence[Fresh], line: int, lines: Lines) -> Iterator[str]:
    """The lines of the rows, on average `line` characters long, as many together as make a block."""
    n = max(1, BLOCK // line)
    for start in range(0, len(rows), n):
        yield "".join(lines(rows[start : start + n]))


def field(value: object) -> str:
    """Write one value in COPY's text format."""
    if value is None:
        return "\\N"
    text = str(value)
    if "\\" in text:  # to look first is much quicker than to replace nothing
        text = text.replace("\\", "\\\\")
    if "\t" in text:
        text = text.replace("\t", "\\t")
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\r" in text:
        text = text.replace("\r", "\\r")
    return text
