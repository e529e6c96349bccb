"""What type checkers say about code that uses duly: right calls pass, wrong ones are refused, types are revealed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

PREAMBLE = """
from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from duly import Backoff, Duly, Job, current_job

jobs = Duly()

@jobs.task
def add(a: int, b: int = 1) -> int:
    return a + b

@jobs.task(queue="mail", retry=Backoff.exponential(max_attempts=5), timeout=timedelta(seconds=30))
def send(user_id: int, *, template: str) -> None: ...

@jobs.task
async def fetch(url: str) -> bytes:
    return b""

@jobs.task(concurrency=3)
async def crawl(url: str, depth: int = 2) -> list[str]:
    return []
"""

RIGHT = """
add.enqueue(1)
add.enqueue(1, b=2)
send.enqueue(42, template="plain")
send.using(delay=timedelta(hours=1), priority=50, unique="welcome:42", tenant="acme").enqueue(42, template="x")
send.using(delay="1h", expires=60, tags=["a"]).enqueue_many([{"user_id": 1, "template": "x"}])
fetch.enqueue("https://example.org")
total: int = add(1, 2) + add.enqueue(1).wait(timeout=5)

async def main() -> None:
    job = await fetch.aenqueue("https://example.org")
    data: bytes = await job
    page: bytes = await fetch("https://example.org")
    more: list[str] = await crawl.using(priority=3)("https://example.org")
    async with jobs.worker():
        pass
    print(data, page, more)

@jobs.on_start
def started() -> None: ...

@jobs.middleware
def around(job: object) -> Iterator[None]:
    yield

@jobs.on_failure
def failed(job: object, error: BaseException) -> None: ...

with jobs.worker(["mail", "default"]) as worker:
    print(worker.busy, total)
"""

WRONG = [
    'add.enqueue("one")',
    "add.enqueue()",
    "add.enqueue(1, 2, 3)",
    "add.enqueue(a=1, c=2)",
    "add(None)",
    'send.enqueue(42, "plain")',
    "send.enqueue(42)",
    "fetch.enqueue(7)",
    'crawl.enqueue("x", depth="deep")',
    "send.using(priority=5).enqueue(template=1, user_id=2)",
    'send.using(priorty=5).enqueue(1, template="x")',
    "send.using(run_at='tomorrow')",
    "text: str = add.enqueue(1).wait()",
    "text2: str = add(1)",
    "jobs.task(queue=5)",
    "jobs.task(colour='red')",
]

REVEALED = {
    "add.enqueue(1)": r"Job\[(builtins\.)?int\]",
    "add.using(priority=1).enqueue(1)": r"Job\[(builtins\.)?int\]",
    "add(1)": r"\W(builtins\.)?int\W",
    "add.enqueue(1).wait()": r"\W(builtins\.)?int\W",
    "add.enqueue(1).result()": r"\W(builtins\.)?int\W",
    "fetch.enqueue('x')": r"Job\[(builtins\.)?bytes\]",
    "crawl.enqueue('x')": r"Job\[(builtins\.)?list\[(builtins\.)?str\]\]",
    "add.enqueue_many([])": r"list\[(duly\.job\.)?Job\[(builtins\.)?int\]\]",
    "send.enqueue(1, template='x')": r"Job\[None\]",
}
AWAITED = {
    "await add.enqueue(1)": r"\W(builtins\.)?int\W",
    "await add.aenqueue(1)": r"Job\[(builtins\.)?int\]",
    "await fetch.enqueue('x')": r"\W(builtins\.)?bytes\W",
    "await fetch('x')": r"\W(builtins\.)?bytes\W",
}


def program() -> tuple[str, dict[int, str], dict[int, str]]:
    """One program with everything in it, and on which lines an error or a type is expected."""
    lines = (PREAMBLE + RIGHT).splitlines()
    wrong: dict[int, str] = {}
    revealed: dict[int, str] = {}
    for code in WRONG:
        lines.append(code)
        wrong[len(lines)] = code
    for code, pattern in REVEALED.items():
        lines.append(f"reveal_type({code})")
        revealed[len(lines)] = pattern
    lines.append("async def reveal() -> None:")
    for code, pattern in AWAITED.items():
        lines.append(f"    reveal_type({code})")
        revealed[len(lines)] = pattern
    return "\n".join(lines) + "\n", wrong, revealed


def mypy(folder: Path) -> str:
    command = [
        BIN / "mypy",
        "--strict",
        "--no-error-summary",
        f"--cache-dir={ROOT / '.mypy_cache' / 'typing'}",
        "program.py",
    ]
    return check(command, folder, {"MYPYPATH": str(ROOT / "src")})


def basedpyright(folder: Path) -> str:
    configuration = f"""
        [tool.basedpyright]
        typeCheckingMode = "standard"
        pythonVersion = "3.11"
        extraPaths = ["{ROOT / "src"}"]
        """
    (folder / "pyproject.toml").write_text(textwrap.dedent(configuration))
    return check([BIN / "basedpyright", "program.py"], folder, {})


def check(command: list[object], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "program.py" in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("checker", [mypy, basedpyright])
def test_right_calls_pass_wrong_calls_are_refused_and_types_are_known(checker: object, tmp_path: Path) -> None:
    assert callable(checker)
    text, wrong, revealed = program()
    (tmp_path / "program.py").write_text(text)
    errors: dict[int, str] = {}
    notes: dict[int, str] = {}
    for said in checker(tmp_path).splitlines():
        found = re.search(r"program\.py:(\d+):.*?\b(error|note|information|warning)\b:? (.*)", said)
        if found is not None:
            kept = errors if found[2] == "error" else notes
            kept[int(found[1])] = kept.get(int(found[1]), "") + found[3] + " "
    unexpected = {line: message for line, message in errors.items() if line not in wrong}
    assert not unexpected, f"refused although right: {unexpected}"
    passed = [code for line, code in wrong.items() if line not in errors]
    assert not passed, f"let through although wrong: {passed}"
    for line, pattern in revealed.items():
        assert re.search(pattern, f" {notes.get(line, '')} "), (text.splitlines()[line - 1], notes.get(line))
