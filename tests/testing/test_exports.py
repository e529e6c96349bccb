"""The public names that are imported at first use: all there, all found, none by accident."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

PACKAGES = ["duly", "duly.testing"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_what_type_checkers_see(package: str) -> None:
    module = importlib.import_module(package)
    block = next(node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert sorted(module.__all__) == sorted({*homes, "__version__"} if package == "duly" else homes)
    for name, home in homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_there_is_said_so(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018
    with pytest.raises(ImportError):
        exec(f"from {package} import nothing")  # noqa: S102


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_do_not_depend_on_what_was_imported_before(package: str) -> None:
    """A module that has the name of a public function would hide it once imported."""
    module = importlib.import_module(package)
    program = f"import {package} as p, pkgutil, importlib; names = set(p.__all__)\n" + (
        "found = {m.name for m in pkgutil.iter_modules(p.__path__)} & names; assert not found, found\n"
        "for name in names: getattr(p, name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": _path(module)})


def _path(module: object) -> str:
    import duly

    return duly.__file__.removesuffix("/duly/__init__.py")
