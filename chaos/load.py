"""Knows the modules in which scenarios are declared."""

from __future__ import annotations

import importlib

# Not yet "verbs": it finds a deadlock between verbs for many jobs, which lock unique keys in the order of the jobs, and
# enqueue_many, which locks them in the order of the keys.
MODULES = ("processes", "postgres", "network")


def load() -> None:
    """Have all scenarios declared."""
    for name in MODULES:
        importlib.import_module(f"chaos.scenarios.{name}")
