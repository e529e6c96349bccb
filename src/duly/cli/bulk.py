"""Acts on jobs that were named, or on all that a filter finds: counted, asked about, then done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import click

from duly.admin import MOST_LISTED, Bulk
from duly.app import Duly
from duly.cli.base import FAILED, complain, wants_json
from duly.cli.output import answer
from duly.cli.text import clean, plural, tail
from duly.domain.errors import DulyError
from duly.domain.states import State
from duly.job import Job

FILTERS = ("state", "task", "queue", "tenant", "tag", "text")
SHOWN = 10


class Act(NamedTuple):
    """A verb: what to call it before and after, and which jobs it is about where no state is given."""

    verb: str
    past: str
    outcome: str
    states: tuple[State, ...]


def act_on(
    app: Duly,
    act: Act,
    ids: list[str],
    given: dict[str, Any],
    one: Callable[[str], object],
    many: Callable[[Iterable[str]], Bulk],
) -> int | None:
    """Do it, to the jobs named or to those the filter finds. Returns the exit code."""
    wanted = {name: given[name] for name in FILTERS if given[name] is not None}
    if ids and wanted.keys() - {"tenant"}:  # a tenant is also whose jobs the named ones must be
        raise click.UsageError("name jobs or give a filter, not both", click.get_current_context())
    if ids:
        return _named(act, ids, one, dry=given["dry_run"])
    if not wanted:
        raise click.UsageError("which jobs? Name them, or give a filter such as --task", click.get_current_context())
    if not act.states and "state" not in wanted:
        raise click.UsageError(f"--state must say which jobs to {act.verb}", click.get_current_context())
    return _found(app, act, wanted, many, yes=given["yes"], dry=given["dry_run"])


def _named(act: Act, ids: list[str], one: Callable[[str], object], *, dry: bool) -> int | None:
    if dry:
        answer({"count": len(ids), "ids": ids, "dry_run": True}, f"would {act.verb} {plural(len(ids), 'job')}")
        return None
    done, refused = [], []
    for job_id in ids:
        try:
            said = one(job_id)
            done.append(job_id)
            if not wants_json():
                click.echo(f"{job_id} {_outcome(act, said)}")
        except DulyError as error:
            if len(ids) == 1:
                raise
            refused.append((job_id, str(error)))
            complain(str(error))
    if wants_json():
        answer(_as_dict(act, Bulk(done, refused)), "")
    return FAILED if refused else None


def _outcome(act: Act, said: object) -> str:
    return "runs: its worker was asked to stop it" if said == "asked" else act.outcome


# -- by filter --------------------------------------------------------------------------------------------------------


def _found(
    app: Duly, act: Act, wanted: dict[str, Any], many: Callable[[Iterable[str]], Bulk], *, yes: bool, dry: bool
) -> int | None:
    found = _look(app, act, wanted)
    more = len(found) >= MOST_LISTED
    count = f"{MOST_LISTED:,} or more jobs" if more else plural(len(found), "job")
    if dry or not found:
        ids = [job.id for job in found]
        shown = "".join(f"\n  {_line(job)}" for job in found[:SHOWN])
        rest = f"\n  ... and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
        answer(
            {"count": len(ids), "ids": ids, "dry_run": dry},
            f"would {act.verb} {count}{shown}{rest}" if found else "no such jobs",
        )
        return None
    if not yes:
        ask(f"{act.verb.capitalize()} {count}?")
    total = Bulk([], [])
    seen: set[str] = set()
    while fresh := [job.id for job in found if job.id not in seen]:
        seen.update(fresh)
        bulk = many(fresh)
        total = Bulk(total.done + bulk.done, total.refused + bulk.refused)
        found = _look(app, act, wanted) if more else []
        more = len(found) >= MOST_LISTED
    _report(act, total)
    return FAILED if total.refused and not total.done else None


def _look(app: Duly, act: Act, wanted: dict[str, Any]) -> list[Job[Any]]:
    if "state" in wanted:
        return app.list(**wanted, limit=MOST_LISTED)
    found: list[Job[Any]] = []
    for state in act.states:
        if len(found) < MOST_LISTED:
            found += app.list(**wanted, state=state, limit=MOST_LISTED - len(found))
    return found


def can_ask() -> bool:
    """Whether somebody is there who could answer."""
    return sys.stdin.isatty() and not wants_json()


def ask(question: str) -> None:
    """Go on only if a person says yes."""
    if not can_ask():
        raise click.UsageError(f"{question} Say --yes, or see which with --dry-run", click.get_current_context())
    if not click.confirm(question, err=True):
        raise click.exceptions.Exit(FAILED)


def _line(job: Job[Any]) -> str:
    return f"{tail(job.id)}  {job.state}  {clean(job.task)}  {clean(job.record.args, 80)}"


def _report(act: Act, total: Bulk) -> None:
    text = f"{plural(len(total.done), 'job')} {act.past}"
    for why in sorted({why for _, why in total.refused}):
        n = sum(1 for _, each in total.refused if each == why)
        text += f"\n{plural(n, 'job')} not: {why}"
    answer(_as_dict(act, total), text)


def _as_dict(act: Act, total: Bulk) -> dict[str, Any]:
    refused = [{"id": job_id, "why": why} for job_id, why in total.refused]
    return {"count": len(total.done), act.past: total.done, "refused": refused}
