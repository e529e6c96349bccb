"""Writes docs/reference/ from the code: every command with its help, every setting with its default.

`python tools/reference.py` writes; `--check` fails if what is committed is not what would be written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import click

from duly.alerts.settings import AlertSettings
from duly.cli import main as cli
from duly.config import Settings
from duly.domain.durations import human

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
WRITTEN = "<!-- written by tools/reference.py -->\n"

SETTINGS = {
    "url": "The database: `sqlite:///file.db` (three slashes relative, four absolute), `libsql:///file.db`, "
    "`postgresql://user@host/name`, or `env:DATABASE_URL` to take it from that variable.",
    "schema": "PostgreSQL: the schema that holds the tables.",
    "lease": "How long a job is held without a sign of life; renewed at a third of it.",
    "grace": "How long running jobs may take to end when a worker stops.",
    "poll": "How often an idle worker looks by itself, besides being woken.",
    "maintenance_interval": "How often a worker prunes and adds up.",
    "stuck_after": "When a run without renewal counts as stuck; the lease if not set.",
    "retention_succeeded": "How long succeeded jobs are kept.",
    "retention_failed": "How long failed jobs are kept.",
    "retention_cancelled": "How long cancelled jobs are kept.",
    "retention_rollups": "How long counts are kept (by the minute for two days, then by the hour).",
    "retention_audit": "How long it is kept what operators did.",
    "max_payload": "The largest arguments of one job, in bytes.",
    "max_result": "The largest result of one job, in bytes; a larger one is cut and says so.",
    "log_lines": "How many log lines are kept with a run.",
    "thread_slots": "How many `def` handlers a worker runs at once.",
    "async_slots": "How many `async def` handlers a worker runs at once.",
    "process_slots": 'How many handlers with `isolation="process"` a worker runs at once.',
    "crash_limit": "How many runs in a row may take their worker with them before the job is set aside as failed.",
    "synchronous": "SQLite: `full` survives a power cut, `normal` may lose the last commits in one.",
    "include": "Modules that declare more tasks, loaded by the worker.",
    "allow_network_disk": "SQLite: accept a network disk; safe only if a single host ever opens the file.",
    "redact": "The names of fields whose values the HTTP API and the dashboard never show, in arguments, results, "
    "errors and logs. Case, `_`, `-` and `.` make no difference.",
    "token": "A bearer token for the HTTP API that may do everything.",
    "web_hosts": "The host names under which the HTTP API and the dashboard answer, beside those of this machine.",
    "web_users": "Who may sign in by password: `NAME:SCOPES[@TENANT]:HASH`, the hash from `duly tokens hash-password`.",
    "metrics_listen": "Where a worker serves `/metrics`, `/healthz` and `/readyz`: a port (of this machine alone), "
    "or `host:port`.",
    "metrics_tenants": "How many tenants are named in metrics; the others are `other`.",
    "metrics_scope": "`process`: a worker serves only its own metrics, not those of the whole database.",
    "alerts": "When alerts start and where they go: a table `[alerts]`, see howto/monitor.md; in the "
    "environment, as JSON.",
    "notify": "PostgreSQL: wake workers by LISTEN and NOTIFY; without it they look every 200 ms.",
}


def _shown(value: object) -> str:
    if isinstance(value, timedelta):
        return f"`{human(value)}`"
    if isinstance(value, AlertSettings):
        return "as there"
    if value is None or value == ():
        return "not set"
    return f"`{', '.join(value) if isinstance(value, tuple) else value}`"


def settings_page() -> str:
    """Every setting, by keyword, by environment, by file."""
    known = {each.name: each for each in fields(Settings)}
    missing = set(known) ^ set(SETTINGS)
    if missing:
        raise SystemExit(f"tools/reference.py does not describe: {', '.join(sorted(missing))}")
    lines = [
        WRITTEN,
        "# Settings\n",
        "A keyword of `Duly(...)` wins over the environment (`DULY_` and the name in capitals), which wins over",
        "`duly.toml` or `[tool.duly]` in `pyproject.toml`. An unknown name is an error that names the nearest.",
        'Durations are seconds, or text such as `"1h30m"`, or a `timedelta`.\n',
        "| setting | environment | default | |",
        "|---|---|---|---|",
    ]
    for name, text in SETTINGS.items():
        lines.append(f"| `{name}` | `DULY_{name.upper()}` | {_shown(known[name].default)} | {text} |")
    return "\n".join(lines) + "\n"


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            if not child.hidden:
                yield from _commands(child, f"{path} {name}")


def cli_page() -> str:
    """Every command with its help."""
    parts = [WRITTEN, "# Commands\n"]
    for path, command in _commands(cli, "duly"):
        context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
        parts.append(f"## `{path}`\n\n```\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def main() -> int:
    """Write the pages, or check them."""
    pages = {"settings.md": settings_page(), "cli.md": cli_page()}
    stale = [name for name, text in pages.items() if not _same(FOLDER / name, text)]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/reference/{name} is not what the code says. Run: python tools/reference.py")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(pages[name], encoding="utf-8")
        print(f"wrote docs/reference/{name}")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
