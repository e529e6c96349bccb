"""Starts `program.py`, and gathers what its processes had to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duly

PROGRAM = Path(__file__).with_name("program.py")
SOURCES = str(Path(duly.__file__).parents[1])


def in_processes(what: str, how_many: int, *arguments: object, user: str | None = None) -> list[Any]:
    """Have `how_many` processes do `what` at once. Returns their answers; fails if one has an error to report."""
    answers = [json.loads(line) for line in start(what, how_many, *arguments, user=user).splitlines()]
    errors = [answer["traceback"] for answer in answers if "error" in answer]
    assert not errors, "\n".join(errors)
    assert len(answers) == how_many
    return [answer["answer"] for answer in answers]


def start(what: str, how_many: int, *arguments: object, user: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), what, str(how_many), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": SOURCES},
        user=user,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
