"""Writes docs/guards.md from the table in tests/guards: each guard, what it protects, how it is removed, what goes red.

`python -m tools.guards` writes; `--check` fails if what is committed is not what would be written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.guards.exceptions import EXCEPTIONS
from tests.guards.guard import Guard
from tests.guards.removing import Edit, Entry
from tests.guards.table import GROUPS, GUARDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guards.md"
INTRODUCTION = """\
<!-- written by tools/guards.py -->
# Guards, and the tests that go red without them

A guard is text whose only work is that something does *not* happen: a fence, a lock, the order of locks, a unique
index, a condition that a lease is over, a tenant in a WHERE. Here is every one, {n} of them. `make deep` takes each
out of the code in turn: the tests named beside it, green before, must go red, and by an assertion, not by an error
in the text that is left. What looks like a guard and is not in this table is at the end, with the reason; a new one
that is in neither fails a test. See [decision 0023](decisions/0023-guards.md).

What a guard protects: *I* invariants and *P* promises ([guarantees](guarantees.md)), *F* failure modes.

| | |
|---|---|
{legend}
"""
LEGEND = {
    "I1": "no committed job vanishes",
    "I2": "at most one end is accepted of each run",
    "I3": "tokens only grow",
    "I4": "two live leases never share a job; a job is in one place",
    "I5": "attempts and crashes are counted",
    "I6": "what has ended or is disabled comes back by an operator's word alone",
    "I7": "a unique key has at most one live job",
    "I8": "each tick of a schedule makes at most one job",
    "I9": "no more run than a limit says",
    "I10": "a tenant neither sees nor changes what another has",
    "P3": "a worker that lost its lease cannot change the job",
    "P4": "the jobs of a worker that died run again within a lease and two looks",
    "P5": "the job of a live worker is never given away",
    "P6": "a job that kills its workers is set aside",
    "P7": "an enqueue or an end may be repeated after a lost reply",
    "P8": "each tick comes exactly once",
    "P11": "workers live through a restart of the database",
    "P13": "a unique key never makes two live jobs, nor a false answer",
    "P14": "on SQLite a returned enqueue survives, also beside forks and other programs",
    "P16": "migrations are made by one at a time",
    "P17": "the dashboard and the API are closed to others",
    "P19": "tenants are apart",
    "F1, F5": "what a dead worker held is found",
    "F2, F3": "stale ends; a worker that goes on without its lease",
    "F4, F14": "a lost reply to a claim, an enqueue or an end",
    "F6, F7": "a rescue or another write from a stale look; one row that strands others",
    "F9, F10": "poison; leases that are not renewed because something blocks",
    "F13, F19": "outages and clocks",
    "F20, F21": "deadlocks and waits; migrations",
    "F24, F27": "two at one tick; races for a unique key",
    "F28, F29": "limits that leak; noisy tenants",
    "F38 to F43": "SQLite: locks, durability, network disks, forks",
}


def page() -> str:
    """The whole page."""
    legend = "\n".join(f"| {sign} | {text} |" for sign, text in LEGEND.items())
    return INTRODUCTION.format(n=len(GUARDS), legend=legend) + "".join(_groups()) + "".join(_exceptions())


def _groups() -> Iterator[str]:
    for title, guards in GROUPS.items():
        yield f"\n## {title}\n\n| guard | protects | without it | taken out | goes red |\n|---|---|---|---|---|\n"
        for guard in guards:
            yield f"| {' | '.join(map(_cell, _columns(guard)))} |\n"


def _columns(guard: Guard) -> tuple[str, ...]:
    edits = "<br>".join(map(_edit, guard.edits))
    tests = "<br>".join(test.removeprefix("tests/").replace("::", " ") for test in guard.tests)
    return guard.name, guard.protects, guard.without, edits, tests


def _edit(edit: Edit) -> str:
    if isinstance(edit, Entry):
        return f"{edit.where}: {edit.put}"
    cut, put = (" ".join(text.split()) for text in (edit.cut, edit.put))
    return f"{edit.where}: `{cut}`" + (f" becomes `{put}`" if put else "")


def _exceptions() -> Iterator[str]:
    yield "\n## What is no guard\n\n| where | what | why |\n|---|---|---|\n"
    for where, texts in EXCEPTIONS.items():
        for text, reason in texts.items():
            yield f"| {_cell(where)} | {_cell(text or 'all of it')} | {_cell(reason)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Write the page, or see whether it is what it should be."""
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PAGE} is not what the table says. Run: python -m tools.guards")
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
