"""Whether recurring jobs will recur."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from duly.doctor.finding import Area, Finding
from duly.doctor.words import counted, some
from duly.store import ops_doctor, ops_repair
from duly.store.ops_doctor import MOST, Disabled, Partial
from duly.store.ops_recurring import UNDECLARED, Recurring

if TYPE_CHECKING:
    from duly.app import Duly

AREA = Area("recurring")
FIX = "duly doctor --fix"
WANTED = ("its schedule has ended", "its handler cancelled it")
"""How the reasons begin that somebody meant."""


def check(app: Duly) -> Iterator[Finding]:
    """Look for recurring jobs that would not run, or only seem disabled."""
    database, recurring = app.store.database, app.store.recurring
    nowhere = database.read(lambda: ops_doctor.some_ids("doctor_recurring_nowhere"))
    placed = database.read(lambda: ops_doctor.some_ids("doctor_disabled_placed"))
    partial = database.read(ops_doctor.partial)
    yield from broken(recurring, nowhere, placed, partial)
    yield from disabled(database.read(ops_doctor.disabled))
    enabled, off, failing = app.store.count_recurring()
    if failing:
        yield AREA.info(
            "failing",
            f"{counted(failing, 'recurring job')} failed when last run, and go on",
            "see duly schedules list",
            failing=failing,
        )
    if not (nowhere or placed or partial):
        counts = f"{counted(enabled, 'recurring job')} enabled, {off:,} disabled"
        yield AREA.ok("places", f"{counts}, each where it should be", enabled=enabled, disabled=off)


def broken(
    recurring: Recurring, nowhere: Sequence[str], placed: Sequence[str], partial: Sequence[Partial]
) -> Iterator[Finding]:
    """Recurring jobs that are not where they should be."""
    if nowhere:
        yield AREA.error(
            "nowhere",
            f"{counted(len(nowhere), 'recurring job is', 'recurring jobs are', most=MOST)} enabled and in no place, "
            f"and will never run: {some(nowhere)}",
            f"{FIX}: each waits for its next run again, at once if that has passed, with a new fence",
            lambda: ops_repair.place_recurring(recurring, nowhere),
            jobs=list(nowhere),
        )
    if placed:
        yield AREA.error(
            "disabled",
            f"{counted(len(placed), 'recurring job is', 'recurring jobs are', most=MOST)} disabled and would run all "
            f"the same: {some(placed)}",
            f"{FIX}: each leaves its place; its fence is kept",
            lambda: ops_repair.leave_disabled(recurring, placed),
            jobs=list(placed),
        )
    if partial:
        yield AREA.error(
            "rows",
            f"{counted(len(partial), 'recurring job lacks', 'recurring jobs lack', most=MOST)} some of the rows: "
            f"{some([f'{each.id} ({lacks(each)})' for each in partial])}",
            f"{FIX}: without its job it is forgotten; without its schedule it runs once; how it stands is read off "
            "its place",
            lambda: ops_repair.complete(recurring, partial),
            jobs=[{"id": each.id, "lacks": lacks(each)} for each in partial],
        )


def lacks(found: Partial) -> str:
    """Which rows are missing, in words."""
    there = {"jobs": found.job, "schedules": found.schedule, "recurring": found.standing}
    return "no row in " + ", ".join(name for name, has in there.items() if not has)


def disabled(found: Sequence[Disabled]) -> Iterator[Finding]:
    """Recurring jobs that duly itself disabled, and why."""
    for each in found:
        name = f"{each.task} {each.key!r}" if each.key else each.task
        others = f" and {counted(each.jobs - 1, 'other')}" if each.jobs > 1 else ""
        what = f"{name}{others}: disabled by duly: {each.reason}"
        evidence = {"reason": each.reason, "jobs": each.jobs, "example": name}
        if each.by == UNDECLARED or each.reason.startswith(WANTED):
            yield AREA.info("paused", what, **evidence)
        else:
            step = f"mend the cause (duly runs --task {each.task}), then duly schedules enable {each.task}"
            yield AREA.warning("paused", what, step, **evidence)
