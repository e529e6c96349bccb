"""Finds the application: `module:attribute`, `module`, or a file `app.py[:attribute]`; or just its database.

The current directory can be imported from. What stands in the database never decides what is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import click

from duly.app import Duly
from duly.cli.base import this_user
from duly.cli.text import without_password
from duly.domain.errors import ConfigurationError, DatabaseUnavailable
from duly.domain.names import suggest
from duly.store.sqlite import SqliteDatabase

ENVIRONMENT = "DULY_APP"


class AppNotFound(ConfigurationError):
    """The application could not be found or loaded."""


class Found(NamedTuple):
    """An application, the module it is in, and its name there."""

    app: Duly
    module: ModuleType
    path: str


# -- by what a person wrote -------------------------------------------------------------------------------------------


def find_app(spec: str, include: tuple[str, ...] = ()) -> Found:
    """Load the application that `spec` names, and the modules that declare more of its tasks."""
    make_importable(Path.cwd())
    where, _, attribute = _split(spec)
    if Path(where).name in ("duly", "duly.py"):
        raise AppNotFound(f"{where} has the name of duly itself, so Python would mix them up. Rename your file")
    module = _load_file(where) if _is_file(where) else _load_module(where)
    name, app = _pick(module, attribute, where)
    app.app_path = f"{module.__name__}:{name}"
    for extra in (*app.settings.include, *include):
        _load_module(extra)
    return Found(app, module, app.app_path)


def make_importable(folder: Path) -> None:
    """Let modules in a folder be imported, before all others."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _split(spec: str) -> tuple[str, str, str]:
    where, colon, attribute = spec.rpartition(":")
    if not colon or os.sep in attribute:
        return spec, "", ""
    return where, colon, attribute


def _is_file(where: str) -> bool:
    return where.endswith(".py") or os.sep in where


def _load_file(where: str) -> ModuleType:
    path = Path(where).resolve()
    if not path.is_file():
        near = suggest(path.name, [each.name for each in path.parent.glob("*.py")]) if path.parent.is_dir() else ""
        raise AppNotFound(f"there is no file {where}.{near}")
    root, name = _place_of(path)
    make_importable(root)
    present = sys.modules.get(name)
    if present is not None and getattr(present, "__file__", None) == str(path):
        return present
    if present is not None:
        name = f"duly_app_{path.stem}"  # the name is taken, by a module of Python itself for example
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppNotFound(f"{where} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        if "." in name:
            importlib.import_module(name.rpartition(".")[0])
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        raise _failed(where, error) from error
    return module


def _place_of(path: Path) -> tuple[Path, str]:
    """Return the folder to import from and the module's name there, packages included."""
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    return root, ".".join(names)


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise AppNotFound(f"{name!r} is neither a module nor a file. Write module:attribute or path/to/app.py")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f" Did you mean {name}.py?" if Path(f"{name}.py").exists() else ""
            raise AppNotFound(f"there is no module {name!r} in {Path.cwd()} or on the Python path.{hint}") from error
        raise _failed(name, error) from error
    except BaseException as error:
        raise _failed(name, error) from error


def _failed(where: str, error: BaseException) -> BaseException:
    """Return the error to raise when the application's own code raised: with the line of that code."""
    if isinstance(error, (KeyboardInterrupt, ConfigurationError)):
        return error
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}, line {error.lineno})"
        return AppNotFound(f"{where} cannot be loaded: {type(error).__name__}: {error.msg}{place}")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return AppNotFound(f"{where} cannot be loaded: {type(error).__name__}: {error}{place}")


def _is_theirs(filename: str) -> bool:
    ours = str(Path(__file__).parent.parent)
    return not filename.startswith((ours, "<frozen"))


def _pick(module: ModuleType, attribute: str, where: str) -> tuple[str, Duly]:
    """Return the `Duly` of a module and its name: the one asked for, or the only one."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, Duly)}
    if attribute:
        value: object = module
        for part in attribute.split("."):
            value = getattr(value, part, None)
        if isinstance(value, Duly):
            return attribute, value
        wrong = (
            f"no {attribute!r}" if value is None else f"{attribute!r}, but it is a {type(value).__name__}, not a Duly"
        )
        better = f" Did you mean {where}:{next(iter(found))}?" if len(found) == 1 else _names(where, found)
        raise AppNotFound(f"{where} has {wrong}.{better}")
    different = {id(app): name for name, app in reversed(found.items())}
    if len(different) == 1:
        name = next(iter(different.values()))
        return name, found[name]
    if not found:
        raise AppNotFound(f"{where} has no Duly in it. Add one: jobs = Duly(), or name the module that has it")
    raise AppNotFound(f"{where} has several.{_names(where, found)}")


def _names(where: str, found: dict[str, Duly]) -> str:
    return f" Name one: {', '.join(f'{where}:{name}' for name in found)}" if found else ""


# -- for commands -----------------------------------------------------------------------------------------------------


def required_app(spec: str | None, include: tuple[str, ...] = ()) -> Found:
    """Load the application that a command needs; closed when the command ends."""
    context = click.get_current_context()
    if not spec:
        raise click.UsageError(f"which app? Name it ({context.command_path} app.py) or set {ENVIRONMENT}", context)
    found = find_app(spec, include)
    context.call_on_close(found.app.close)
    return found


def open_database(
    url: str | None,
    schema: str | None,
    spec: str | None,
    *,
    create: bool = False,
    include: tuple[str, ...] = (),
    name_app: str = "--app app.py",
) -> Duly:
    """Open a database without needing the application: by address, else the application's, else the configured one.

    `create`: it may be made. `name_app`: how this command is told the application, for the error.
    """
    app = find_app(spec, include).app if url is None and spec else Duly(url, schema=schema)
    click.get_current_context().call_on_close(app.close)
    act(app)
    database = app.store.database
    if not create and isinstance(database, SqliteDatabase) and not database.path.exists():
        raise DatabaseUnavailable(
            f"there is no database {database.path}. "
            f"Say where it is: --url sqlite:///path or {name_app}; a worker or `duly migrate` makes a new one"
        )
    return app


def act(app: Duly, who: str | None = None) -> None:
    """Have what this command does be kept as done by who runs it. Not for commands that start workers."""
    click.get_current_context().with_resource(app.acting_as(who or this_user(), via="cli"))


def address_of(app: Duly) -> str:
    """Return an application's database as people may see it, without its password."""
    return without_password(app.settings.url)
