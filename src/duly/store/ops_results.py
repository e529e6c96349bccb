"""What callers wait for: which jobs have ended, and with what."""

from __future__ import annotations

import json
from collections.abc import Sequence

from duly.domain.records import RunRecord
from duly.store.call import Call, Dialect, Op, Value

LAST_TOKEN = 2**63 - 1


def ended_among(dialect: Dialect, ids: Sequence[str]) -> Op[dict[str, str]]:
    """Which of these jobs have ended, and how."""
    if dialect is Dialect.POSTGRES:
        rows = yield Call("ended_among", {"ids": list(ids)})
    else:
        rows = yield Call("ended_among", {"batch": json.dumps(list(ids))})
    return {str(row[0]): str(row[1]) for row in rows}


def last_run(job_id: str) -> Op[RunRecord | None]:
    """The last run of a job."""
    rows = yield Call("last_run", {"id": job_id})
    return RunRecord._make(rows[0]) if rows else None


def last_runs(dialect: Dialect, ids: Sequence[str]) -> Op[dict[str, RunRecord]]:
    """The last run of each of these jobs, without traceback, result and log."""
    if not ids:
        return {}
    given: dict[str, Value] = {"ids": list(ids)} if dialect is Dialect.POSTGRES else {"batch": json.dumps(list(ids))}
    rows = yield Call("last_runs", given)
    return {str(row[0]): RunRecord._make(row) for row in rows}


def newest_runs_of(job_id: str, *, before_token: int | None, n: int) -> Op[list[RunRecord]]:
    """The newest runs of a job, newest first; `before_token` is that of the last one of the page before."""
    token = LAST_TOKEN if before_token is None else before_token
    rows = yield Call("newest_runs_of", {"id": job_id, "before_token": token, "n": n})
    return [RunRecord._make(row) for row in rows]
