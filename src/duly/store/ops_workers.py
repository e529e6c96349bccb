"""Workers on record: who they are, that they live, what they know."""

from __future__ import annotations

from dataclasses import asdict

from duly.domain.records import ProcessIdentity, WorkerRecord
from duly.store.call import Call, Op, Value


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
    }
    yield Call("insert_worker", params | asdict(process))


def see(worker_id: str, state: str) -> Op[tuple[bool, int | None, int | None]]:
    """Write down that a worker lives. Returns whether it is on record, and when something is due or may lapse."""
    rows = yield Call("see_worker", {"id": worker_id, "state": state})
    if not rows:
        return False, None, None
    due, lapse = (None if value is None else int(str(value)) for value in rows[0])
    return True, due, lapse


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
            )
        )
    return found
