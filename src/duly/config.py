"""Settings: keywords, then the environment (`DULY_*`), then `duly.toml` or `pyproject.toml` `[tool.duly]`.

Every value is checked here, whatever it came from, and the error says where that was. A name that `Settings`
does not have is an error too, with the nearest that it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from duly.alerts.settings import DEFAULT_ALERTS, AlertSettings, read_alerts
from duly.domain.durations import LONGEST, human, to_timedelta
from duly.domain.errors import ConfigurationError, InvalidOption
from duly.domain.names import check_text, suggest
from duly.domain.text import safe_repr

KIB: Final = 1024
MIB: Final = 1024 * KIB
REDACTED: Final = ("password", "passwd", "secret", "token", "api_key", "authorization")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How duly runs here. Made by `load_settings`, which checks every value."""

    url: str = field(default="sqlite:///duly.db", repr=False)  # it may hold a password
    schema: str = "duly"
    lease: timedelta = timedelta(seconds=15)
    grace: timedelta = timedelta(seconds=25)
    poll: timedelta = timedelta(seconds=10)
    maintenance_interval: timedelta = timedelta(seconds=60)
    stuck_after: timedelta | None = None
    retention_succeeded: timedelta = timedelta(days=7)
    retention_failed: timedelta = timedelta(days=30)
    retention_cancelled: timedelta = timedelta(days=7)
    retention_rollups: timedelta = timedelta(days=400)
    retention_audit: timedelta = timedelta(days=400)
    max_payload: int = 256 * KIB
    max_result: int = 256 * KIB
    log_lines: int = 1000
    thread_slots: int = 10
    async_slots: int = 100
    process_slots: int = 2
    crash_limit: int = 3
    synchronous: Literal["full", "normal"] = "full"
    include: tuple[str, ...] = ()
    allow_network_disk: bool = False
    notify: bool = True
    redact: tuple[str, ...] = field(default=REDACTED, repr=False)
    token: str | None = field(default=None, repr=False)
    web_hosts: tuple[str, ...] = ()
    web_users: tuple[str, ...] = field(default=(), repr=False)
    metrics_listen: str | None = None
    metrics_tenants: int = 20
    metrics_scope: Literal["all", "process"] = "all"
    alerts: AlertSettings = DEFAULT_ALERTS

    @property
    def renew_interval(self) -> timedelta:
        """How often a lease is renewed: a third of it, so that two renewals may fail."""
        return self.lease / 3

    @property
    def stuck_time(self) -> timedelta:
        """How long a running job may go without renewal before it is taken for stuck."""
        return self.lease if self.stuck_after is None else self.stuck_after


def load_settings(**keywords: object) -> Settings:
    """Return the settings; a keyword that is None counts as not given."""
    return read_settings(keywords, os.environ, Path.cwd())


class Given(NamedTuple):
    """One value, and where it was found."""

    value: object
    source: str


def read_settings(keywords: Mapping[str, object], environ: Mapping[str, str], directory: Path) -> Settings:
    """Return the settings from keywords, from `environ`, and from the file found from `directory` upwards."""
    given = {**_from_file(directory), **_from_environment(environ), **_from_keywords(keywords)}
    values: dict[str, object] = {}
    if "url" in given:
        given["url"] = _resolved_url(given["url"], environ)
    for name, (value, source) in given.items():
        try:
            values[name] = _READERS[name](value, f"{name} ({source})")
        except InvalidOption as error:
            raise ConfigurationError(str(error)) from error
    settings = Settings(**values)  # type: ignore[arg-type]  # each was made by the reader of its field
    if settings.stuck_after is not None and settings.stuck_after < settings.lease:
        raise ConfigurationError(
            f"stuck_after ({given['stuck_after'].source}) must be at least the lease "
            f"({human(settings.lease)}), and {human(settings.stuck_after)} would rob live workers."
        )
    return settings


# Where values come from


def _from_keywords(keywords: Mapping[str, object]) -> dict[str, Given]:
    given = {}
    for name, value in keywords.items():
        if name not in _READERS:
            raise ConfigurationError(f"Unknown setting {name!r} (keyword).{suggest(name, _READERS)}")
        if value is not None:
            given[name] = Given(value, "keyword")
    return given


_PREFIX: Final = "DULY_"
_NOT_SETTINGS: Final = (
    r"DULY_(APP|(TEST|BENCH)_.*"  # read by the command line, the tests, the benchmarks
    r"|(.*_)?SERVICE_(HOST|PORT)(_.*)?|(.*_)?PORT(_[0-9]+_.*)?)"  # what Kubernetes adds for a service "duly"
)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    given = {}
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or re.fullmatch(_NOT_SETTINGS, variable):
            continue
        name = variable.removeprefix(_PREFIX).lower()
        if name not in _READERS or variable != variable.upper():
            known = [_PREFIX + known.upper() for known in _READERS]
            raise ConfigurationError(f"Unknown environment variable {variable}.{suggest(variable, known)}")
        if value.strip():  # an empty variable is how many tools say "not set"
            given[name] = Given(_Text(value.strip()), f"environment {variable}")
    return given


class _Text(str):
    """Text from the environment, where numbers and lists have no other form than text."""


def _from_file(directory: Path) -> dict[str, Given]:
    for folder in _folders_of_project(directory):
        own = folder / "duly.toml"
        if os.path.isfile(own):
            return _from_table(_parse_toml(own, _read_bytes(own)), own, prefix="")
        shared = folder / "pyproject.toml"
        if os.path.isfile(shared):
            data = _read_bytes(shared)
            table = _tool_table(_parse_toml(shared, data), shared) if b"duly" in data else {}
            return _from_table(table, shared, prefix="tool.duly.")
    return {}


def _folders_of_project(directory: Path) -> list[Path]:
    """Return the directory and its parents up to the one that holds .git or pyproject.toml.

    Where there is none, only the directory itself: a file in /tmp or / is not ours to obey.
    """
    folders: list[Path] = []
    for folder in (directory, *directory.parents):
        folders.append(folder)
        if os.path.exists(folder / ".git") or os.path.isfile(folder / "pyproject.toml"):
            return folders
    return [directory]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from error


def _parse_toml(path: Path, data: bytes) -> dict[str, object]:
    import tomllib  # here, since it is slow to import and most programs have no file

    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, of nesting
        raise ConfigurationError(f"{path} is not valid TOML: {error}.") from error


def _tool_table(document: Mapping[str, object], path: Path) -> dict[str, object]:
    table: object = document
    for key in ("tool", "duly"):
        table = table.get(key, {}) if isinstance(table, Mapping) else table
    if not isinstance(table, dict):
        raise ConfigurationError(f"{path}: tool.duly must be a table, as in [tool.duly].")
    return table


def _from_table(table: Mapping[str, object], path: Path, *, prefix: str) -> dict[str, Given]:
    for name in table:
        if name not in _READERS:
            raise ConfigurationError(f"{path}: unknown key {prefix}{name}.{suggest(name, _READERS)}")
    return {name: Given(value, f"{path}: {prefix}{name}") for name, value in table.items()}


def _resolved_url(given: Given, environ: Mapping[str, str]) -> Given:
    """Return the URL, taken from another variable where it says so: "env:DATABASE_URL"."""
    if not isinstance(given.value, str) or not given.value.startswith("env:"):
        return given
    variable = given.value.removeprefix("env:")
    value = environ.get(variable, "").strip()
    if not value:
        raise ConfigurationError(f"url ({given.source}) is {given.value!r}, but {variable!r} is not set.")
    return Given(value, f"environment {variable}")


# What each value may be


Reader: TypeAlias = Callable[[object, str], object]
_SIZE: Final = r"([0-9]{1,15})\s*([A-Za-z]*)"
_UNITS: Final = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "kib": KIB, "mib": MIB}
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


def _duration(lowest: timedelta, highest: timedelta = LONGEST) -> Reader:
    def read(value: object, what: str) -> timedelta:
        if isinstance(value, _Text):
            value = _number(value)
        duration = to_timedelta(value, what)  # type: ignore[arg-type]  # it refuses what it does not know
        if not lowest <= duration <= highest:
            raise InvalidOption(f"{what} must be from {human(lowest)} to {human(highest)}, not {human(duration)}.")
        return duration

    return read


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _whole(lowest: int, highest: int) -> Reader:
    def read(value: object, what: str) -> int:
        if isinstance(value, _Text) and value.isdecimal() and len(value) < 20:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise InvalidOption(f"{what} must be a whole number from {lowest} to {highest}, not {safe_repr(value)}.")
        return value

    return read


def _size(lowest: int, highest: int) -> Reader:
    in_range = _whole(lowest, highest)

    def read(value: object, what: str) -> object:
        if isinstance(value, str):
            size = re.fullmatch(_SIZE, value)
            if size is None or size[2].lower() not in _UNITS:
                raise InvalidOption(f"{what} must be a number of bytes or text like '256KiB', not {safe_repr(value)}.")
            value = int(size[1]) * _UNITS[size[2].lower()]
        return in_range(value, what)

    return read


def _choice(*words: str) -> Reader:
    def read(value: object, what: str) -> str:
        word = value.lower() if isinstance(value, str) else ""
        if word not in words:
            hint = suggest(word, words)
            raise InvalidOption(f"{what} must be one of {', '.join(words)}, not {safe_repr(value)}.{hint}")
        return word

    return read


def _flag(value: object, what: str) -> bool:
    if isinstance(value, _Text) and value.lower() in _TRUE + _FALSE:
        value = value.lower() in _TRUE
    if not isinstance(value, bool):
        raise InvalidOption(f"{what} must be true or false, not {safe_repr(value)}.")
    return value


def _modules(value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(f"{what} must be a list of modules, not {type(value).__name__}.")
    for module in value:
        if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
            raise InvalidOption(f"{what} must hold module names like 'shop.tasks', and {safe_repr(module)} is none.")
    return tuple(value)


def _texts(kind: str) -> Reader:
    def read(value: object, what: str) -> tuple[str, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) and each for each in value):
            raise InvalidOption(f"{what} must be a list of {kind}.")  # not shown: it may hold a password's hash
        return tuple(value)

    return read


def _secret(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidOption(f"{what} must be text that nobody can guess: openssl rand -hex 32")
    return value.strip()


def _schema(value: object, what: str) -> str:
    if not isinstance(value, str) or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", value) is None:
        raise InvalidOption(
            f"{what} must be up to 63 letters, digits and underscores, not starting with a digit; "
            f"{safe_repr(value)} is not."
        )
    return str(value)


def _url(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidOption(f"{what} must be text like 'sqlite:///duly.db' or 'postgresql://host/database'.")
    try:
        return str(check_text(value.strip(), "url", 4 * KIB))
    except InvalidOption:  # its message would show the URL, which may hold a password
        raise InvalidOption(f"{what} is too long or has control characters.") from None


def _listen(value: object, what: str) -> str:
    """Where to listen: a port of this machine alone, or host:port."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    found = (
        re.fullmatch(r"(?:(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):)?([0-9]{1,5})", value) if isinstance(value, str) else None
    )
    if found is None or int(found[2]) > 65_535:
        raise InvalidOption(f"{what} must be a port, or text like '0.0.0.0:9150', not {safe_repr(value)}.")
    return f"{found[1] or '127.0.0.1'}:{int(found[2])}"


_NOTHING: Final = timedelta(0)
_DAY: Final = timedelta(days=1)
_READERS: Final[dict[str, Reader]] = {
    "url": _url,
    "schema": _schema,
    "lease": _duration(timedelta(milliseconds=200), _DAY),
    "grace": _duration(_NOTHING, _DAY),
    "poll": _duration(timedelta(milliseconds=10), _DAY),
    "maintenance_interval": _duration(timedelta(milliseconds=100), _DAY),
    "stuck_after": _duration(timedelta(milliseconds=200)),
    "retention_succeeded": _duration(_NOTHING),
    "retention_failed": _duration(_NOTHING),
    "retention_cancelled": _duration(_NOTHING),
    "retention_rollups": _duration(_NOTHING),
    "retention_audit": _duration(_NOTHING),
    "max_payload": _size(KIB, 256 * MIB),
    "max_result": _size(0, 256 * MIB),
    "log_lines": _whole(0, 1_000_000),
    "thread_slots": _whole(0, 10_000),
    "async_slots": _whole(0, 100_000),
    "process_slots": _whole(0, 1_000),
    "crash_limit": _whole(1, 1_000),
    "synchronous": _choice("full", "normal"),
    "include": _modules,
    "allow_network_disk": _flag,
    "notify": _flag,
    "redact": _texts("names of fields"),
    "token": _secret,
    "web_hosts": _texts("host names"),
    "web_users": _texts("users, each NAME:SCOPES:HASH"),
    "metrics_listen": _listen,
    "metrics_tenants": _whole(0, 10_000),
    "metrics_scope": _choice("all", "process"),
    "alerts": read_alerts,
}
