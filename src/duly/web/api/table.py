"""A row of the table of routes: a method and a path, what it takes, which verb it calls, what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from duly.web.api.schema import Schema
from duly.web.desk import Verb


@dataclass(frozen=True, slots=True)
class Row:
    """One endpoint. The verb is called with the path's values in order, and the rest by name."""

    method: str
    path: str
    verb: Verb[..., Any]
    answers: str
    """The name of the shape of its answer."""
    query: dict[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    needs_body: bool = True
    status: int = 200
    fixed: tuple[Any, ...] = ()
    """Values that come before those of the path."""
    gather: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Turns what was given into what the verb takes."""
    path_schemas: dict[str, Schema] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What it does: what its verb says."""
        return (self.verb.__doc__ or "").strip().split("\n")[0]

    @property
    def name(self) -> str:
        """Its name in the document."""
        words = [part.strip("{}").replace("-", "_") for part in self.path.removeprefix("/api/").split("/")]
        return "_".join([self.method.lower(), *words])
