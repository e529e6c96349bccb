"""docs/howto/testing.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testing.conftest import RunPytest

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "testing.md"
BLOCK = re.compile(r"```(?:python|toml)\n# (?P<name>\S+)\n(?P<text>.*?)```", re.DOTALL)


def test_the_examples_of_the_page_pass(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    blocks = {block["name"]: block["text"] for block in BLOCK.finditer(HOWTO.read_text())}
    assert set(blocks) == {"pyproject.toml", "shop.py", "test_shop.py", "test_plain.py", "conftest.py"}
    conftest = blocks.pop("conftest.py")
    for name, text in blocks.items():
        (pytester.path / name).write_text(text)
    run_pytest().assert_outcomes(passed=3)

    (pytester.path / "conftest.py").write_text(conftest)
    run_pytest().assert_outcomes(passed=3)


def test_the_message_that_the_page_shows_is_the_one_that_comes(
    pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    page = HOWTO.read_text()
    blocks = {block["name"]: block["text"] for block in BLOCK.finditer(page)}
    (pytester.path / "shop.py").write_text(blocks["shop.py"])
    (pytester.path / "pyproject.toml").write_text(blocks["pyproject.toml"])
    pytester.makepyfile(
        """
        import shop
        from duly.testing import assert_enqueued

        def test_shown(duly_jobs):
            shop.sign_up("ada@example.org")
            assert_enqueued(duly_jobs, shop.send_welcome, args={"email": "bob@example.org"})
        """
    )
    shown = re.search(r"```\n(no job enqueued.*?)```", page, re.DOTALL)
    assert shown is not None
    result = run_pytest()
    result.stdout.fnmatch_lines([f"E*{line}" for line in shown[1].splitlines()])
