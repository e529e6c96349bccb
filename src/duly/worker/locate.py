"""Says where a task's function is written, and finds it there from another process.

An address is made from this process's own registry, never from stored data: nothing in the database can name code.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

from duly.domain.errors import ConfigurationError
from duly.domain.retry import Backoff
from duly.domain.signature import Signature
from duly.worker.registry import Kind, Registry, TaskDefinition

MAIN = "__mp_main__"  # what multiprocessing calls it, so that `if __name__ == "__main__":` keeps its meaning


class Address(NamedTuple):
    """A function or class by its module, its name there, and the module's file if it has one."""

    module: str
    qualname: str
    file: str | None


class Post(NamedTuple):
    """A task as another process needs it: its address, and how it retries where only its function is found."""

    name: str
    address: Address
    app: str | None
    hooks: list[Address]
    retry: str
    max_attempts: int
    retry_on: list[Address]
    give_up_on: list[Address]


class Place(NamedTuple):
    """A task as it was found. Without a registry only its function was: no hooks, no middleware."""

    definition: TaskDefinition
    registry: Registry | None


# -- in the process that has the registry -----------------------------------------------------------------------------


def post_of(task: TaskDefinition, registry: Registry, app: str | None) -> Post:
    """Say how another process finds a task, or raise ConfigurationError if none could. `app`: "module:attribute"."""
    address = _address_of(task.fn)
    if app is None and not _stands_at(address, task.fn):
        raise ConfigurationError(
            f"task {task.name!r} has isolation='process', but a child process could not find its function "
            f"({address.module}.{address.qualname}). Declare it at the top level of a module that is in a file"
        )
    every: list[object] = [*registry.on_start, *registry.on_stop, *registry.on_failure, *registry.around]
    hooks = {_address_of(hook)._replace(qualname="") for hook in every}
    return Post(
        name=task.name,
        address=address,
        app=app,
        hooks=[hook for hook in sorted(hooks, key=str) if hook.file is not None],
        retry=task.retry.to_data(),
        max_attempts=task.retry.max_attempts,
        retry_on=[_address_of(each) for each in task.retry.retry_on],
        give_up_on=[_address_of(each) for each in task.retry.give_up_on],
    )


def _address_of(thing: object) -> Address:
    module, qualname = str(getattr(thing, "__module__", "")), str(getattr(thing, "__qualname__", ""))
    loaded = sys.modules.get(module)
    spec = getattr(loaded, "__spec__", None)
    if module == "__main__" and spec is not None:
        module = spec.name  # python -m package.module
    file = getattr(loaded, "__file__", None)
    return Address(module, qualname, os.path.abspath(file) if isinstance(file, str) else None)


def _stands_at(address: Address, fn: Callable[..., object]) -> bool:
    loaded = sys.modules.get(address.module) or sys.modules.get("__main__")
    if loaded is None or (address.file is None and address.module == "__main__"):
        return False
    try:
        found = _walk(loaded, address.qualname)
    except AttributeError:
        return False
    return _function_of(found) is fn


# -- in the process that needs the function ---------------------------------------------------------------------------


def find(post: Post) -> Place:
    """Import a task's module and find the task in it; if only its function is there, make do with that."""
    try:
        place = _find_at(post)
    except AttributeError:
        place = None
    if (place is None or place.registry is None) and post.app is not None:
        place = _find_in_app(post.app, post.name) or place
    if place is None:
        raise ConfigurationError(f"{post.address.module} has no {post.address.qualname}: was its file changed?")
    for hook in post.hooks:
        _load(hook)
    return place


def _find_at(post: Post) -> Place:
    module = _load(post.address)
    found = _walk(module, post.address.qualname)
    function = _function_of(found)
    for each in (found, *vars(module).values()):
        if _is_task(each) and each.definition.fn is function and each.name == post.name:
            return Place(each.definition, each.registry)
    return Place(_plain(post, function), None)


def _find_in_app(app: str, name: str) -> Place | None:
    module, _, attribute = app.partition(":")
    try:
        registry: Registry = _walk(importlib.import_module(module), attribute).registry
    except (ModuleNotFoundError, AttributeError):
        return None
    task = registry.tasks.get(name)
    return None if task is None else Place(task, registry)


def _plain(post: Post, function: Callable[..., Any]) -> TaskDefinition:
    signature = Signature.of(function)
    policy = Backoff.from_data(post.retry, post.max_attempts)
    return TaskDefinition(
        name=post.name,
        fn=function,
        signature=signature,
        kind=Kind.PROCESS,
        retry=replace(policy, retry_on=_classes(post.retry_on), give_up_on=_classes(post.give_up_on)),
        by_keyword=signature.by_keyword,
    )


def _classes(addresses: list[Address]) -> tuple[type[BaseException], ...]:
    return tuple(_walk(_load(address), address.qualname) for address in addresses)


def _load(address: Address) -> ModuleType:
    name = MAIN if address.module == "__main__" else address.module
    present = sys.modules.get(name)
    if present is not None:
        return present
    if name == MAIN:
        assert address.file is not None
        return _load_file(MAIN, address.file)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name or address.file is None:
            raise
    return _load_file(name, address.file)  # it was loaded by its path there too


def _load_file(name: str, file: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name, file)
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    if name == MAIN:
        sys.modules["__main__"] = module
    return module


def _walk(start: object, qualname: str) -> Any:
    for part in qualname.split("."):
        start = getattr(start, part)
    return start


def _is_task(thing: Any) -> bool:
    return isinstance(getattr(type(thing), "registry", None), property) and isinstance(
        getattr(thing, "definition", None), TaskDefinition
    )


def _function_of(thing: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = thing.definition.fn if _is_task(thing) else thing
    return function
