"""Which recurring job a word means: a name, TASK/KEY, TASK, an id, or the end of one.

Without --tenant, one of no tenant comes first; else the only one that any tenant has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

import click

from duly.app import Duly
from duly.cli.base import this_user
from duly.cli.jobs import SHORTEST_TAIL
from duly.cli.options import all_of, database_options, include_option
from duly.cli.text import clean, tail
from duly.domain.errors import InvalidOption, JobNotFound, RecurringJobNotFound
from duly.domain.ids import is_job_id
from duly.domain.names import suggest
from duly.recurring import RecurringJob

F = TypeVar("F", bound=Callable[..., Any])
SEARCHED = 10_000
PAGE = 1_000
SHOWN = 5

tenant_option = click.option("--tenant", metavar="NAME", help="Look among this tenant's.")
which_options = all_of(database_options, include_option, tenant_option)


def label(job: RecurringJob) -> str:
    """Return what people call it, which also finds it again."""
    return clean(job.name or path(job), 200)


def path(job: RecurringJob) -> str:
    """Return TASK/KEY, or TASK where there is no key."""
    return f"{job.task}/{job.key}" if job.key else job.task


def by_option(help: str) -> Callable[[F], F]:
    """The option that says who does it."""
    return click.option("--by", default=this_user, show_default="you", metavar="NAME", help=help)


def find(app: Duly, word: str, tenant: str | None) -> RecurringJob:
    """Return the recurring job that a word means, or raise: with those it may mean, or the nearest."""
    text = word.strip()
    if is_job_id(text.lower()):
        return _by_id(app, text.lower())
    found = _probe(app, text, tenant or "")
    if not found:
        searched = list(islice(every_one(app, tenant=tenant), SEARCHED))
        found = _matching(searched, text)
        if not found:
            raise RecurringJobNotFound(_nothing(app, searched, text, tenant))
    if len(found) > 1:
        raise RecurringJobNotFound(_several(found, text))
    return found[0]


def _by_id(app: Duly, job_id: str) -> RecurringJob:
    try:
        return app.recurring_by_id(job_id)
    except RecurringJobNotFound:
        try:
            app.get(job_id)
        except JobNotFound:
            raise RecurringJobNotFound(f"there is no recurring job {job_id}") from None
        raise RecurringJobNotFound(f"job {job_id} does not recur. See it with: duly jobs show {job_id}") from None


def _probe(app: Duly, text: str, tenant: str) -> list[RecurringJob]:
    """Look where the indexes lead: the name, and task and key."""
    task, _, key = text.partition("/")
    found = []
    with suppress(RecurringJobNotFound, InvalidOption):  # not there, or nothing that could be stored
        found.append(app.recurring_by_name(text, tenant=tenant))
    with suppress(RecurringJobNotFound, InvalidOption):
        found.append(app.recurring_job(task, key, tenant=tenant))
    return list(dict.fromkeys(found))


def every_one(app: Duly, **wanted: Any) -> Iterator[RecurringJob]:
    """Return all recurring jobs that fit, a page at a time."""
    page = app.recurring_jobs(**wanted, limit=PAGE)
    while page:
        yield from page
        page = app.recurring_jobs(**wanted, after=page[-1], limit=PAGE) if len(page) == PAGE else []


def _matching(jobs: list[RecurringJob], text: str) -> list[RecurringJob]:
    """Those of any tenant that are called so; else those whose id ends so."""
    called = [job for job in jobs if text in (job.name, path(job))]
    word = text.lower()
    if called or len(word) < SHORTEST_TAIL or not all(each in "0123456789abcdef-" for each in word):
        return called
    return [job for job in jobs if job.id.endswith(word)]


# -- what there is instead --------------------------------------------------------------------------------------------


def _nothing(app: Duly, searched: list[RecurringJob], text: str, tenant: str | None) -> str:
    whose = f" of tenant {tenant!r}" if tenant else ""
    shown = clean(text, 80)
    if not searched:
        return f"there is no recurring job {shown!r}{whose}: there is none at all. Make one: duly schedules add"
    said = f"there is no recurring job {shown!r}{whose}."
    of_task = [job for job in searched if job.task == text]
    if of_task:
        return f"task {shown} recurs only with a key: {_some(of_task, name=path)}"
    hint = suggest(text, [name for job in searched for name in (job.name, path(job)) if name])
    more = f" Only the first {SEARCHED:,} were searched: say --tenant" if len(searched) >= SEARCHED else ""
    return f"{said}{hint or f' There are: {_some(searched)}'}{more}"


def _several(found: list[RecurringJob], text: str) -> str:
    return f"{len(found)} recurring jobs may be meant by {clean(text, 80)!r}: {_some(found, ids=True)}. Give the id"


def _some(jobs: list[RecurringJob], *, ids: bool = False, name: Callable[[RecurringJob], str] = label) -> str:
    names = [f"{clean(name(job), 200)}{_whose(job)}{f' ({tail(job.id)})' if ids else ''}" for job in jobs[:SHOWN]]
    return ", ".join(names) + (f" and {len(jobs) - SHOWN:,} more" if len(jobs) > SHOWN else "")


def _whose(job: RecurringJob) -> str:
    return f" of {clean(job.tenant)}" if job.tenant else ""
