"""Every operator verb is in the command line, in the HTTP API and on the dashboard: the three lists side by side.

A command, a path or a form that is not in this table fails, and so does a verb that one of the three lacks without a
reason given here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click
import pytest

from duly.cli import main
from duly.web.api.routes import ROWS
from duly.web.pages import acts, looks

JOB, RECURS = "/api/admin/jobs", "/api/admin/scheduled-jobs"


class Verb(NamedTuple):
    """One thing that an operator looks at or does: how in each of the three. Several words, several ways."""

    name: str
    cli: str = ""
    http: str = ""
    page: str = ""
    without: str = ""
    """Why one of the three has it not."""


TABLE = (
    # Jobs
    Verb("list jobs", "jobs list", f"GET {JOB}", "GET /jobs"),
    Verb("show a job", "jobs show", f"GET {JOB}/{{id}} | GET {JOB}/{{id}}/runs", "GET /jobs/{id}"),
    Verb("enqueue", "enqueue", "POST /api/jobs", "POST /jobs/new | GET /jobs/new"),
    Verb("copy", "jobs copy", f"POST {JOB}/{{id}}/copy", "POST /jobs/{id}/copy"),
    Verb("retry", "jobs retry", f"POST {JOB}/{{id}}/retry", "POST /jobs/{id}/retry"),
    Verb("cancel", "jobs cancel", f"POST {JOB}/{{id}}/cancel", "POST /jobs/{id}/cancel"),
    Verb("delete", "jobs delete", f"DELETE {JOB}/{{id}}", "POST /jobs/{id}/delete"),
    Verb("set the priority", "jobs priority", f"PUT {JOB}/{{id}}/priority", "POST /jobs/{id}/priority"),
    Verb("boost", "jobs boost", f"POST {JOB}/{{id}}/boost", "POST /jobs/{id}/boost"),
    Verb("reschedule", "jobs reschedule", f"PUT {JOB}/{{id}}/run-at", "POST /jobs/{id}/time"),
    Verb("set the state", "jobs state", f"PUT {JOB}/{{id}}/status", "POST /jobs/{id}/state"),
    Verb(
        "do it to many: retry, cancel, delete, set the priority, set the state",
        "jobs retry | jobs cancel | jobs delete | jobs priority | jobs state",
        f"POST {JOB}/bulk/retry | POST {JOB}/bulk/cancel | POST {JOB}/bulk/delete"
        f" | PUT {JOB}/bulk/priority | PUT {JOB}/bulk/status",
        "POST /jobs/bulk",
    ),
    Verb("newest runs", "runs", "GET /api/admin/runs", "GET /runs"),
    Verb("why a job does not run", "why", f"GET {JOB}/{{id}}/why", "GET /jobs/{id}"),
    Verb("why all that waits does", "why", "GET /api/admin/why", "GET /why"),
    Verb("how many stand where", "stats | top", f"GET {JOB}/stats", "GET /"),
    # What recurs
    Verb("list schedules", "schedules list", f"GET {RECURS}", "GET /schedules"),
    Verb(
        "show a schedule",
        "schedules show",
        f"GET {RECURS}/{{id}} | GET {RECURS}/{{id}}/runs",
        "GET /schedules/{id}",
    ),
    Verb(
        "what a rule means", "schedules next", f"GET {RECURS}/preview", "GET /schedules/preview | POST /schedules/new"
    ),
    Verb("what the next hours bring", "schedules load", f"GET {RECURS}/load", "GET /schedules"),
    Verb("make a schedule", "schedules add", f"POST {RECURS}", "POST /schedules/new | GET /schedules/new"),
    Verb(
        "edit a schedule",
        "schedules edit",
        f"PUT {RECURS}/{{id}}",
        "POST /schedules/{id}/edit | GET /schedules/{id}/edit",
    ),
    Verb("enable a schedule", "schedules enable", f"POST {RECURS}/{{id}}/toggle", "POST /schedules/{id}/enable"),
    Verb("disable a schedule", "schedules disable", f"POST {RECURS}/{{id}}/toggle", "POST /schedules/{id}/disable"),
    Verb("run a schedule now", "schedules run", f"POST {RECURS}/{{id}}/run", "POST /schedules/{id}/run"),
    Verb("remove a schedule", "schedules remove", f"DELETE {RECURS}/{{id}}", "POST /schedules/{id}/delete"),
    # Pauses, limits, shares
    *(
        Verb(f"pause a {scope}", "pause", f"POST /api/admin/{scope}s/{{name}}/pause", "POST /pause")
        for scope in ("queue", "task", "tenant")
    ),
    *(
        Verb(f"resume a {scope}", "resume", f"POST /api/admin/{scope}s/{{name}}/resume", "POST /resume")
        for scope in ("queue", "task", "tenant")
    ),
    Verb("pause anything, also a key", "pause", "PUT /api/admin/paused", "POST /pause"),
    Verb("resume anything, also a key", "resume", "DELETE /api/admin/paused", "POST /resume"),
    Verb("what is paused", "paused", "GET /api/admin/paused", "GET /queues | GET /tenants"),
    Verb("what is limited", "limits list", "GET /api/admin/limits", "GET /queues | GET /tenants"),
    Verb("limit", "limits set", "PUT /api/admin/limits", "POST /limits"),
    Verb("take a limit back", "limits unset", "DELETE /api/admin/limits", "POST /limits/unset"),
    Verb(
        "a tenant's quota",
        "quota",
        "GET /api/admin/tenants/{name}/quota | PUT /api/admin/tenants/{name}/quota",
        "POST /tenants/quota",
    ),
    Verb("list tenants", "tenants list", "GET /api/admin/tenants", "GET /tenants"),
    Verb("show a tenant", "tenants show", "GET /api/admin/tenants/{name}", "GET /tenants"),
    Verb("a tenant's weight", "tenants weight", "PUT /api/admin/tenants/{name}", "POST /tenants"),
    Verb("list queues", "queues list", "GET /api/admin/queues | GET /api/admin/queues/{name}", "GET /queues"),
    Verb("fairness of a queue", "queues fair", "PUT /api/admin/queues/{name}", "POST /queues"),
    Verb("aging of a queue", "queues aging", "PUT /api/admin/queues/{name}", "POST /queues"),
    # The installation
    Verb("who works", "workers", "GET /api/admin/workers", "GET /workers"),
    Verb("what was used", "usage", "GET /api/admin/usage", "GET /usage"),
    Verb("what operators did", "audit", "GET /api/admin/audit", "GET /audit"),
    Verb("what is wrong", "alerts", "GET /api/admin/alerts", "GET /alerts"),
    Verb("show an alert", "alerts show", "GET /api/admin/alerts/{id}", "GET /alerts/{id}"),
    Verb("look for alerts now", "alerts check", "POST /api/admin/alerts/check", "POST /alerts/check"),
    Verb("look after an alert", "alerts ack", "POST /api/admin/alerts/{id}/acknowledge", "POST /alerts/acknowledge"),
    Verb("silence alerts", "alerts silence", "POST /api/admin/alerts/silences", "POST /alerts/silence"),
    Verb("end a silence", "alerts unsilence", "DELETE /api/admin/alerts/silences", "POST /alerts/unsilence"),
    Verb("what is silenced", "alerts", "GET /api/admin/alerts/silences", "GET /alerts"),
    Verb("check everything", "doctor", "GET /api/admin/doctor", "GET /system/doctor | GET /system"),
    Verb("mend what can be mended", "doctor", "POST /api/admin/doctor/fix", "POST /system/mend"),
    Verb("forget what is old", "prune", "POST /api/admin/prune", "POST /system/prune"),
    Verb("list tokens", "tokens list", "GET /api/admin/tokens", "GET /system"),
    Verb("make a token", "tokens create", "POST /api/admin/tokens", "POST /system/tokens"),
    Verb("revoke a token", "tokens revoke", "DELETE /api/admin/tokens/{id}", "POST /system/tokens/revoke"),
    # What is not everywhere
    Verb(
        "run some jobs here", "tick", "POST /api/jobs/tick", without="for where no worker is: cron calls it, not people"
    ),
    Verb("list tasks", "stats", "GET /api/admin/tasks", "GET /jobs/new"),
    Verb("who am I", "", "GET /api/admin/me", "GET /", without="whoever has a shell on the machine is its user"),
    Verb("workers of one's own", "worker | dev", without="a process that one starts, not something done to others"),
    Verb("the server of these pages", "web", without="a process that one starts"),
    Verb("make the tables", "migrate", without="nothing is served before; it needs the owner of the tables"),
    Verb("measure", "bench", without="starts worker processes, and needs the right to make a schema"),
    Verb(
        "roles of PostgreSQL", "roles", without="prints statements for the owner of the tables; no database is opened"
    ),
    Verb("hash a password", "tokens hash-password", without="prints what goes into the settings; nothing is stored"),
)


def parts(text: str) -> list[str]:
    return [each.strip() for each in text.split("|") if each.strip()]


def commands(group: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that does something, also a group that does so alone."""
    if not isinstance(group, click.Group):
        yield " ".join(words)
        return
    if words == ("alerts",):  # alone it lists them
        yield "alerts"
    for name, command in group.commands.items():
        if not command.hidden:
            yield from commands(command, (*words, name))


def served() -> set[str]:
    return {f"{row.method} {row.path}" for row in ROWS}


def pages() -> set[str]:
    return {f"GET {path}" for path in looks()} | {f"POST {path}" for path in acts()}


@pytest.mark.parametrize("column, known", [("cli", set(commands(main))), ("http", served()), ("page", pages())])
def test_the_table_names_all_that_there_is_and_nothing_else(column: str, known: set[str]) -> None:
    named = {each for verb in TABLE for each in parts(getattr(verb, column))}
    assert named - known == set(), "the table names what is not there"
    assert known - named == set(), "say in the table how the other two do this"


@pytest.mark.parametrize("verb", TABLE, ids=lambda verb: verb.name)
def test_every_verb_is_in_all_three_or_says_why_not(verb: Verb) -> None:
    assert all((verb.cli, verb.http, verb.page)) or verb.without
    assert not (all((verb.cli, verb.http, verb.page)) and verb.without), "it is in all three: no reason is needed"


def test_no_verb_is_named_twice() -> None:
    assert len({verb.name for verb in TABLE}) == len(TABLE)
