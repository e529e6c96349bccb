"""Two versions of the code side by side in folders of their own: the one before, and this one.

The one before is $DULY_PREVIOUS: a wheel, a folder with the package in it, or a tag or commit of git. Without it, it is
the tag of the last release; before there is one, this very tree, and this version gets a higher number and made-up
migrations.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from duly import __version__
from duly.store.call import Dialect
from tests.helpers import ROOT
from tests.upgrades.releases import RELEASES
from tests.upgrades.steps import later

_VERSION = re.compile(r'__version__ = "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Tree:
    """One version of the code."""

    folder: Path
    version: str
    schema: int

    def environment(self) -> dict[str, str]:
        """What makes Python take this version, and the tests of this one."""
        return {**os.environ, "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}"}

    def run(self, *words: str) -> str:
        """Run `duly` of this version; returns what it printed."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "duly", *words],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def previous(folder: Path) -> Tree:
    """The version before this one."""
    released = [version for version in RELEASES if version != __version__]
    given = os.environ.get("DULY_PREVIOUS") or (f"v{released[-1]}" if released else None)
    folder.mkdir(parents=True)
    if given is None:
        _copy(ROOT / "src" / "duly", folder)
    elif given.endswith(".whl"):
        with zipfile.ZipFile(given) as wheel:
            wheel.extractall(folder)
    elif (Path(given) / "duly").is_dir():
        _copy(Path(given) / "duly", folder)
    else:
        archive = subprocess.run(
            ["git", "archive", given, "src/duly"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder / "source", filter="data")
        (folder / "source" / "src" / "duly").rename(folder / "duly")
    return _found(folder)


def this(folder: Path, before: Tree, *added: str) -> Tree:
    """This version. Until it has migrations of its own that the one before has not: with `added` ones."""
    folder.mkdir(parents=True)
    _copy(ROOT / "src" / "duly", folder)
    tree = _found(folder)
    if tree.schema == before.schema:
        for dialect in Dialect:
            for step in later(dialect, *added):
                name = f"{step.version:04d}_{step.name}.{dialect.value}.sql"
                (folder / "duly" / "store" / "migrations" / name).write_text(step.sql)
    if tree.version == before.version:
        about = folder / "duly" / "__about__.py"
        about.write_text(_VERSION.sub(f'__version__ = "{tree.version}.next"', about.read_text()))
    return _found(folder)


def _copy(package: Path, folder: Path) -> None:
    shutil.copytree(package, folder / "duly", ignore=shutil.ignore_patterns("__pycache__"))


def _found(folder: Path) -> Tree:
    version = _VERSION.search((folder / "duly" / "__about__.py").read_text())
    assert version is not None
    files = (folder / "duly" / "store" / "migrations").glob("*.sqlite.sql")
    return Tree(folder, version[1], max(int(file.name[:4]) for file in files))
