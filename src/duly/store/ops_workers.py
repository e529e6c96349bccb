"""Workers on record: who they are, that they live, what they know."""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

from duly.domain.records import ProcessIdentity, Skew, WorkerRecord
from duly.store.call import Call, Dialect, Op, Value
from duly.store.migrate import SchemaVersion, newest


class Seen(NamedTuple):
    """What a worker learns when it says that it lives."""

    known: bool
    """Whether it is on record."""
    due_us: int | None = None
    """How long until something is due."""
    lapse_us: int | None = None
    """How long until a lease may lapse."""
    now_us: int | None = None
    """The database's clock."""
    schema: SchemaVersion | None = None
    """What the tables say of themselves by now."""
    miscounted: bool = False
    """Whether PostgreSQL takes tables for empty that are not, and plans accordingly."""


def add(
    worker_id: str,
    process: ProcessIdentity,
    *,
    lease_us: int,
    queues: str,
    tasks: str,
    slots: int,
    wake: str | None,
    version: str,
    skew: Skew | None = None,
    capacity: str | None = None,
) -> Op[None]:
    """Write down that a worker has started."""
    params: dict[str, Value] = {
        "id": worker_id,
        "lease_us": lease_us,
        "queues": queues,
        "tasks": tasks,
        "slots": slots,
        "wake": wake,
        "version": version,
        "knows": newest(Dialect.SQLITE),  # the same for all
        "capacity": capacity,
        **_clock(skew),
    }
    yield Call("insert_worker", params | asdict(process))


def see(worker_id: str, state: str, skew: Skew | None = None, memory_bytes: int | None = None) -> Op[Seen]:
    """Write down that a worker lives, how its host's clock goes and how much memory it has, if it knows."""
    params: dict[str, Value] = {"id": worker_id, "state": state, "memory_bytes": memory_bytes, **_clock(skew)}
    rows = yield Call("see_worker", params)
    if not rows:
        return Seen(False)
    now, due, lapse, compatible_from, version, miscounted = (
        None if value is None else int(str(value)) for value in rows[0]
    )
    schema = None if version is None else SchemaVersion(version, compatible_from)
    return Seen(True, due, lapse, now, schema, bool(miscounted))


def _clock(skew: Skew | None) -> dict[str, Value]:
    ahead, doubt = (None, None) if skew is None else skew
    return {"clock_ahead_us": ahead, "clock_doubt_us": doubt}


def wake_addresses() -> Op[list[str]]:
    """Where workers on SQLite listen."""
    return [str(row[0]) for row in (yield Call("wake_addresses"))]


def everyone() -> Op[list[WorkerRecord]]:
    """Every worker on record."""
    rows = yield Call("list_workers")
    found = []
    for row in rows:
        process = ProcessIdentity(
            host=str(row[1]),
            boot_id=str(row[2]),
            pid_namespace=str(row[3]),
            pid=int(str(row[4])),
            process_started_at=str(row[5]),
        )
        found.append(
            WorkerRecord(
                id=str(row[0]),
                process=process,
                started_at=int(str(row[6])),
                seen_at=int(str(row[7])),
                lease_us=int(str(row[8])),
                queues=str(row[9]),
                tasks=str(row[10]),
                slots=int(str(row[11])),
                wake=None if row[12] is None else str(row[12]),
                idle=bool(row[13]),
                state=str(row[14]),
                version=str(row[15]),
                silent_us=int(str(row[16])),
                skew=None if row[17] is None else Skew(int(str(row[17])), int(str(row[18] or 0))),
                capacity=None if row[19] is None else str(row[19]),
                memory_bytes=None if row[20] is None else int(str(row[20])),
            )
        )
    return found
