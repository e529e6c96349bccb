"""Workers of this version and of the one before work side by side on the tables of this one (P16)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrades.together import EVERYWHERE, NOTHING, Story


@pytest.mark.timeout(300)  # ten processes start one after another: on a busy machine each takes seconds
def test_an_upgrade_under_load(empty_database_url: str, tmp_path: Path) -> None:
    with Story(empty_database_url, tmp_path, EVERYWHERE, seconds=0.5) as story:
        story.tell()


@pytest.mark.deep
@pytest.mark.everywhere
@pytest.mark.parametrize("added", [pytest.param(NOTHING, id="nothing"), pytest.param(EVERYWHERE, id="everything")])
def test_a_long_upgrade_under_load(empty_database_url: str, tmp_path: Path, added: tuple[str, ...]) -> None:
    with Story(empty_database_url, tmp_path, added, seconds=60, crew=2) as story:
        story.tell()
