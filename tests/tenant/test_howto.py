"""docs/howto/tenants.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from duly import InvalidOption
from tests.store.raw import Raw

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "tenants.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_of_the_page_run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_URL", database_url)
    first, scope, refused, share = BLOCKS
    names: dict[str, Any] = {}
    try:
        for block in (first, scope, share):
            exec(compile(block, "tenants.md", "exec"), names)  # noqa: S102 - our own page
        names["await_it"].close()
        with pytest.raises(InvalidOption, match="this is the handle of tenant 'acme'"):
            exec(compile(refused, "tenants.md", "exec"), names)  # noqa: S102
        assert names["acme"].weight() == 3
        assert len(names["acme"].list(state="queued")) == 100
    finally:
        names["jobs"].close()
    raw = Raw(database_url)
    assert raw.rows("SELECT DISTINCT tenant FROM duly.jobs") == [("acme",)]
    raw.close()
