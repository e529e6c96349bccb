"""The database itself refuses a second row where one is promised, whatever the statements do."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from tests.store.raw import Raw

A, B = "00000000-0000-7000-8000-00000000000a", "00000000-0000-7000-8000-00000000000b"


def _place(table: str, columns: str = "", values: str = "") -> tuple[str, str]:
    row = (
        f"INSERT INTO duly.{table} (id, run_at, queue, tenant, task, priority{columns}) "
        f"VALUES ('{A}', 1, 'q', '', 't', 0{values})"
    )
    return row, row


def _waiting(rank: int) -> str:
    return (
        "INSERT INTO duly.waiting (id, run_at, queue, tenant, task, priority, rank) "
        f"VALUES ('{A}', 1, 'q', '', 't', 0, {rank})"
    )


def _job(task: str) -> str:
    return f"INSERT INTO duly.jobs (id, task, created_at) VALUES ('{A}', '{task}', 1)"


def _ended(state: str) -> str:
    return (
        "INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes) "
        f"VALUES ('{A}', '{state}', 1, 1, 1, 0)"
    )


def _run(outcome: str) -> str:
    return (
        "INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id) "
        f"VALUES ('{A}', 1, 1, '{outcome}', 1, 1, '{B}')"
    )


def _key(job_id: str) -> str:
    return f"INSERT INTO duly.unique_keys (tenant, key, job_id, scope) VALUES ('', 'k', '{job_id}', 2)"


def _schedule(job_id: str, key: str, name: str) -> str:
    return (
        "INSERT INTO duly.schedules (id, tenant, task, key, name, rule, anchor_at, created_at, updated_at) "
        f"VALUES ('{job_id}', '', 'send', '{key}', '{name}', '[]', 1, 1, 1)"
    )


def _recurring(enabled: str) -> str:
    return f"INSERT INTO duly.recurring (id, enabled) VALUES ('{A}', {enabled})"


def _admitted(look: str) -> str:
    return f"INSERT INTO duly.admitted (key, job_id, look) VALUES ('send/x', '{A}', {look})"


def _token(token_id: str) -> str:
    return (
        "INSERT INTO duly.tokens (id, hash, kind, name, scopes, created_at) "
        f"VALUES ('{token_id}', 'abc', 'token', 'n', 'read', 1)"
    )


def _alert(alert_id: str) -> str:
    return (
        "INSERT INTO duly.alerts (id, rule, subject, value, threshold, message, started_at, seen_at) "
        f"VALUES ('{alert_id}', 'backlog', 'q', 1, 1, 'm', 1, 1)"
    )


def _notice(notice_id: str) -> str:
    return (
        "INSERT INTO duly.alert_notices (id, alert_id, event, channel, body, made_at, next_try_at) "
        f"VALUES ('{notice_id}', '{A}', 'started', 'log', '{{}}', 1, 1)"
    )


_RUNNING = ", token, attempt, crashes, hold, worker_id, claimed_at, leased_until"

ROWS: dict[str, tuple[str, str]] = {
    "jobs": (_job("send"), _job("other")),
    "scheduled": _place("scheduled"),
    "waiting": (_waiting(1), _waiting(2)),
    "parked": _place("parked", ", parked_at, reason", ", 1, 'key'"),
    "running": _place("running", _RUNNING, f", 1, 1, 0, 0, '{B}', 1, 1"),
    "ended": (_ended("failed"), _ended("succeeded")),
    "runs": (_run("failed"), _run("succeeded")),
    "unique_keys": (_key(A), _key(B)),
    "schedules": (_schedule(A, "one", "one"), _schedule(A, "two", "two")),
    "schedules by key": (_schedule(A, "one", "one"), _schedule(B, "one", "two")),
    "schedules by name": (_schedule(A, "one", "one"), _schedule(B, "two", "one")),
    "recurring": (_recurring("true"), _recurring("false")),
    "admitted": (_admitted("true"), _admitted("false")),
    "tokens by hash": (_token(A), _token(B)),
    "alerts that are active": (_alert(A), _alert(B)),
    "notices": (_notice(A), _notice(B)),
}
"""A row, and another that may not stand beside it."""


@pytest.mark.parametrize("name", ROWS)
def test_the_database_refuses_a_second_row(raw: Raw, name: str) -> None:
    first, second = ROWS[name]
    raw.rows(first)
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
        raw.rows(second)
