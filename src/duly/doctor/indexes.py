"""Whether the indexes that the migrations make are there, on either database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from duly.doctor.finding import Area, Finding

AREA = Area("database")


def indexes(there: Mapping[str, bool], wanted: Mapping[str, str | None]) -> Iterator[Finding]:
    """Whether the indexes that the migrations make are there and can be used."""
    wrong = 0
    for name, statement in wanted.items():
        if there.get(name):
            continue
        wrong += 1
        state = "invalid" if name in there else "missing"
        drop = f"DROP INDEX {name}; " if name in there else ""
        yield AREA.error(
            "indexes",
            f"index {name} is {state}",
            f"run {drop}{statement}" if statement else "make the primary key of its table again",
            index=name,
            state=state,
        )
    if not wrong:
        yield AREA.ok("indexes", f"all {len(wanted)} indexes are there", count=len(wanted))
