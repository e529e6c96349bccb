"""Takes a guard out of the code for as long as a test runs: out of a statement, a migration or a function.

The text to cut must be there exactly as often as the table says, or this fails: so the table cannot outlive the code.
Nothing in `src` knows of it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module, resources
from types import CodeType, FunctionType
from typing import Any
from unittest import mock

from duly.store import foreign_steps, migrate, statements
from duly.store.texts import texts

_HEADER = re.compile(r"^-- (?:name|part): (\w+)(?: \[(\w+)\])? \S.*$", re.M)
_MIGRATIONS = migrate.migrations


class NotThere(Exception):
    """What a guard should be cut out of has another text than the table says."""


@dataclass(frozen=True, slots=True)
class Statement:
    """Text in a named statement (or part) of `store/sql`, which one dialect or both have."""

    name: str
    cut: str
    put: str = ""
    times: int = 1

    @property
    def where(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Schema:
    """Text in a migration, between two marks if it is there more often than once."""

    file: str
    cut: str
    put: str = ""
    within: str = ""
    """How the one statement begins that is meant."""

    @property
    def where(self) -> str:
        return self.file


@dataclass(frozen=True, slots=True)
class Code:
    """Text in a function or method, named as `module:function` or `module:Class.method`."""

    name: str
    cut: str
    put: str = ""

    @property
    def where(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a dictionary, named as `module:dictionary`, and what stands there instead."""

    name: str
    key: str
    put: object

    @property
    def where(self) -> str:
        return f"{self.name}[{self.key}]"


Edit = Statement | Schema | Code | Entry


def blocks() -> dict[str, str]:
    """Every statement and part of `store/sql` as it is written, by its name: `settle [postgres]`, or `set_progress`."""
    found: dict[str, str] = {}
    for _, text in texts("sql"):
        found |= {name: body for name, body, _, _ in _blocks_of(text)}
    return found


def _blocks_of(text: str) -> Iterator[tuple[str, str, int, int]]:
    headers = list(_HEADER.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    for header, end in zip(headers, ends, strict=True):
        name, dialect = header.groups()
        yield name if dialect is None else f"{name} [{dialect}]", text[header.end() : end], header.end(), end


@contextmanager
def removed(edits: Sequence[Edit]) -> Iterator[None]:
    """Have the code without some text. Whoever opens a store meanwhile has it so."""
    with ExitStack() as stack:
        said = [each for each in edits if isinstance(each, Statement)]
        if said:
            edited = [(name, _without(text, said)) for name, text in texts("sql")]
            _check_all(said)
            stack.enter_context(mock.patch.object(statements, "texts", side_effect=lambda _: iter(edited)))
        schema = [each for each in edits if isinstance(each, Schema)]
        if schema:
            changed = {each.file: migration_text(each.file) for each in schema}
            for edit in schema:
                changed[edit.file] = _cut_schema(changed[edit.file], edit)
            stack.enter_context(mock.patch.object(migrate, "migrations", _migrations_with(changed)))
        stack.callback(_forget)
        _forget()
        for each in edits:
            if isinstance(each, Code):
                stack.enter_context(_recoded(each))
            elif isinstance(each, Entry):
                stack.enter_context(_replaced(each))
        yield


def _forget() -> None:
    """Have what was read once be read again."""
    statements.load.cache_clear()
    migrate.indexes.cache_clear()
    for cached in vars(foreign_steps).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


# -- statements -----------------------------------------------------------------------------------------------


def _check_all(edits: Sequence[Statement]) -> None:
    known = blocks()
    for edit in edits:
        if edit.name not in known:
            raise NotThere(f"there is no statement {edit.name}")
        cut(known[edit.name], edit.cut, edit.put, edit.times, edit.name)


def cut(text: str, old: str, new: str, times: int, where: str) -> str:
    """Replace a text that must be there so many times."""
    found = text.count(old)
    if found != times:
        raise NotThere(f"{where} should have {times} times, and has {found} times: {old}")
    return text.replace(old, new)


def _without(text: str, edits: Sequence[Statement]) -> str:
    for name, body, start, end in reversed(list(_blocks_of(text))):
        for edit in edits:
            if edit.name == name:
                body = body.replace(edit.cut, edit.put)
        text = text[:start] + body + text[end:]
    return text


# -- migrations -----------------------------------------------------------------------------------------------


def migration_text(file: str) -> str:
    """A migration as it is written."""
    entry = resources.files("duly.store").joinpath("migrations", file)
    if not entry.is_file():
        raise NotThere(f"there is no migration {file}")
    return entry.read_text(encoding="utf-8")


def _cut_schema(text: str, edit: Schema) -> str:
    if not edit.within:
        return cut(text, edit.cut, edit.put, 1, edit.file)
    if text.count(edit.within) != 1:
        raise NotThere(f"{edit.file} should have once, and has {text.count(edit.within)} times: {edit.within}")
    start = text.index(edit.within)
    end = text.index(";\n", start)
    where = f"{edit.file}, {edit.within}"
    return text[:start] + cut(text[start:end], edit.cut, edit.put, 1, where) + text[end:]


def _migrations_with(changed: dict[str, str]) -> Any:
    def migrations(dialect: Any) -> tuple[migrate.Migration, ...]:
        steps = _MIGRATIONS(dialect)
        files = [f"{step.version:04}_{step.name}.{dialect}.sql" for step in steps]
        return tuple(step._replace(sql=changed.get(file, step.sql)) for step, file in zip(steps, files, strict=True))

    return migrations


@contextmanager
def _replaced(edit: Entry) -> Iterator[None]:
    module, _, name = edit.name.partition(":")
    entries = getattr(import_module(module), name, {})
    if edit.key not in entries or entries[edit.key] == edit.put:
        raise NotThere(f"{edit.where} is not there, or no guard")
    with mock.patch.dict(entries, {edit.key: edit.put}):
        yield


# -- functions ------------------------------------------------------------------------------------------------


@contextmanager
def _recoded(edit: Code) -> Iterator[None]:
    """Give a function other code, in place: so whoever has imported it has it too."""
    function, code = _function(edit.name), _code_without(edit)
    before = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = before


def _function(name: str) -> FunctionType:
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        if not hasattr(found, part):
            raise NotThere(f"there is no {name}")
        found = inspect.getattr_static(found, part)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    found = inspect.unwrap(found)
    assert isinstance(found, FunctionType)
    return found


def _code_without(edit: Code) -> CodeType:
    function = _function(edit.name)
    source = cut(inspect.getsource(function), edit.cut, edit.put, 1, edit.name)
    source = "from __future__ import annotations\n" + textwrap.dedent(source)
    compiled = compile(source, f"<{edit.name} without {edit.cut.strip()}>", "exec")
    (code,) = (each for each in compiled.co_consts if isinstance(each, CodeType) and each.co_name == function.__name__)
    if code.co_freevars != function.__code__.co_freevars:
        raise NotThere(f"{edit.name} is made inside another function, and cannot be given other code")
    return code
