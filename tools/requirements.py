"""Show which tests prove which requirement: `make requirements`.

docs/requirements.md holds the requirements, each a list item `- **A1** text`; a test names those that it
proves with `@pytest.mark.requirement("A1", ...)`, on a function, a class, a module's `pytestmark` or a
parameter. The marks are read from the source, so nothing is imported and nothing runs.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = Path("docs/requirements.md")
FOLDERS = ("tests", "examples", "benchmarks", "chaos")
ITEM = re.compile(r"- \*\*(?P<id>[A-Z]\d+)\*\* +(?P<text>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One numbered line of the document."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One id that a test, class or module names."""

    id: str
    test: str
    line: int


class RequirementsError(Exception):
    """The document or a mark is not as it should be."""


def main(arguments: list[str] | None = None) -> int:
    """Print the requirements with their tests, or only check the marks; return the exit code."""
    parser = argparse.ArgumentParser(description="Show which tests prove which requirement.")
    parser.add_argument("--check", action="store_true", help="only fail if a mark names an unknown requirement")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    options = parser.parse_args(arguments)
    try:
        requirements = parse(options.root / DOCUMENT)
        marks = list(collect(options.root))
        refuse_unknown(requirements, marks)
    except RequirementsError as error:
        print(error, file=sys.stderr)
        return 1
    if not options.check:
        print("\n".join(report(requirements, marks)))
    return 0


def parse(document: Path) -> list[Requirement]:
    """Read the requirements in their order; an item goes on over indented lines."""
    found: dict[str, str] = {}
    current = ""
    for line in document.read_text(encoding="utf-8").splitlines():
        if item := ITEM.fullmatch(line):
            current = item["id"]
            if current in found:
                raise RequirementsError(f"{document}: {current} is there twice")
            found[current] = item["text"]
        elif current and line.startswith("  "):
            found[current] += f" {line.strip()}"
        else:
            current = ""
    return [Requirement(id=id, text=text) for id, text in found.items()]


def collect(root: Path) -> Iterator[Mark]:
    """Yield every mark in the project's test folders."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if any(part.startswith(".") for part in Path(name).parts):
                continue  # environments of the benchmarks, which are not ours
            yield from marks_in(ast.parse(path.read_text(encoding="utf-8"), filename=name), name)


def marks_in(node: ast.AST, place: str) -> Iterator[Mark]:
    """Yield the marks below `node`; a decorator belongs to what it decorates."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from marks_in(child, f"{place}::{child.name}")
            continue
        if isinstance(child, ast.Call) and is_requirement_mark(child.func):
            yield from ids_of(child, place)
        yield from marks_in(child, place)


def is_requirement_mark(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "requirement"
        and ast.unparse(function.value).rpartition(".")[2] == "mark"
    )


def ids_of(call: ast.Call, place: str) -> Iterator[Mark]:
    if not call.args or call.keywords:
        raise RequirementsError(f'{place} (line {call.lineno}): write requirement("A1", ...) with at least one id')
    for argument in call.args:
        if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
            raise RequirementsError(f"{place} (line {call.lineno}): requirement ids are written out as text")
        yield Mark(id=argument.value, test=place, line=call.lineno)


def refuse_unknown(requirements: Iterable[Requirement], marks: Iterable[Mark]) -> None:
    known = {requirement.id for requirement in requirements}
    unknown = [f"{m.test} (line {m.line}): {DOCUMENT} has no {m.id!r}" for m in marks if m.id not in known]
    if unknown:
        raise RequirementsError("\n".join(unknown))


def report(requirements: list[Requirement], marks: Iterable[Mark]) -> Iterator[str]:
    """Yield the lines to print: each requirement, its tests, and how many have none."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for mark in marks:
        if mark.test not in tests[mark.id]:
            tests[mark.id].append(mark.test)
    for requirement in requirements:
        yield textwrap.fill(requirement.text, 100, initial_indent=f"{requirement.id:<4}", subsequent_indent="    ")
        yield from (f"      {test}" for test in tests[requirement.id] or ["no test yet"])
    without = [requirement.id for requirement in requirements if not tests[requirement.id]]
    proven = len(requirements) - len(without)
    yield ""
    yield f"{len(requirements)} requirements: {proven} with tests, {len(without)} without."
    if without:
        yield textwrap.fill(f"Without: {', '.join(without)}", 100)


if __name__ == "__main__":
    sys.exit(main())
