"""Public names that are imported when they are first used, so that importing a package costs next to nothing.

pytest imports `duly.testing.plugin`, and with it `duly`, in every project that has duly installed; the command line
shows its help without a database. Type checkers see the real imports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def importer(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Make a package's `__getattr__`: `homes` says which names are in which module."""
    home_of = {name: module for module, names in homes.items() for name in names}

    def getattr_(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return getattr_
