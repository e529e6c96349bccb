"""What has been released, so that what is done to its tables from then on can be judged.

A release adds its line: `"0.1.0": Release(11, fingerprint(11))`, the fingerprint written out. A migration up to its
number never changes after that, and `$DULY_PREVIOUS` of tests/upgrades defaults to its tag.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from duly.store.call import Dialect
from duly.store.migrate import migrations


class Release(NamedTuple):
    """A release."""

    schema: int
    """The version of the tables that it knows."""
    fingerprint: str
    """Of all migrations up to that."""


RELEASES: dict[str, Release] = {}


def fingerprint(schema: int) -> str:
    """Something that changes when a migration up to this version does."""
    texts = [step.sql for dialect in Dialect for step in migrations(dialect) if step.version <= schema]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
