"""Whether the indexes that the migrations make are there, on either database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from duly.doctor.finding import Area, Finding

AREA = Area("database")


def indexes(there: Mapping[str, bool], wanted: Mapping[str, str | None], *, within: str = "") -> Iterator[Finding]:
    """Whether the indexes that the migrations make are there and can be used."""
    wrong = 0
    for name, statement in wanted.items():
        if there.get(name):
            continue
        wrong += 1
        state = "invalid" if name in there else "missing"
        drop = f"DROP INDEX {within}{name}; " if name in there else ""
        key = f"make the primary key of table {within}{name.removesuffix('_pkey')} again"
        yield AREA.error(
            "indexes",
            f"index {name} is {state}",
            f"run {drop}{statement}" if statement else key,
            index=name,
            state=state,
        )
    if not wrong:
        yield AREA.ok("indexes", f"all {len(wanted)} indexes are there", count=len(wanted))
