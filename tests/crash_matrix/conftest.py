"""A database for each operation, hints that are sent at once, and a process whose children end in the middle."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.crash_matrix.exits import Exits
from tests.crash_matrix.matrix import deterministic


@pytest.fixture(scope="session")
def exits() -> Iterator[Exits]:
    exits = Exits()
    yield exits
    exits.close()


@pytest.fixture(autouse=True)
def nothing_by_chance() -> Iterator[None]:
    """Thousands of operations fail here; nobody wants to read of each."""
    logging.disable(logging.CRITICAL)
    with deterministic():
        yield
    logging.disable(logging.NOTSET)
