"""A `Duly` on a fresh database of each kind, and a second connection to damage or read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.store.raw import Raw
from tests.why.look import Gate


@pytest.fixture
def raw(request: pytest.FixtureRequest) -> Iterator[Raw]:
    """The tables behind the store's back."""
    with closing(Raw(request.getfixturevalue("database_url"))) as raw:
        yield raw


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.over.set()
