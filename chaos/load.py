"""Knows the modules in which scenarios are declared."""

from __future__ import annotations

import importlib

MODULES = (
    "processes",
    "shutdown",
    "children",
    "clock",
    "disk",
    "fork",
    "sqlite",
    "power",
    "postgres",
    "network",
    "verbs",
)


def load() -> None:
    """Have all scenarios declared."""
    for name in MODULES:
        importlib.import_module(f"chaos.scenarios.{name}")
