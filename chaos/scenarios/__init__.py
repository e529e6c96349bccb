"""The faults, by name. Each scenario disturbs an arena until enough has happened, and leaves it healed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chaos.place import Place
from chaos.report import Report


class Size(NamedTuple):
    """How much happens."""

    jobs: int
    faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of fault."""

    name: str
    title: str
    run: Callable[[Place, Size, int], Report]
    """Given a place for a database, how much is to happen, and a seed."""
    short: Size
    long: Size
    databases: tuple[str, ...] = ("sqlite", "postgres")
    needs: Callable[[], str | None] = field(default=lambda: None)
    """Says what is missing here, if it cannot run."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str, title: str, **options: Any) -> Callable[[Callable[[Place, Size, int], Report]], Scenario]:
    """Make a function a scenario, and put it into the table."""

    def declare(run: Callable[[Place, Size, int], Report]) -> Scenario:
        made = SCENARIOS[name] = Scenario(name=name, title=title, run=run, **options)
        return made

    return declare
