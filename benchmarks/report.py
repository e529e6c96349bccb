"""Results as a table in the terminal, as JSON and as a Markdown page."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import machine
from postgres import SETTINGS
from redis_server import SETTINGS as REDIS_SETTINGS
from results import Goal, Metric, Outcome, Spread

METHOD = """\
Each cell: median (lowest to highest) of {rounds} rounds. Contenders take turns within a round and who goes
first changes; a ratio is formed within a round, then the median over the rounds is taken. Client, workers and
server share the machine, over 127.0.0.1. A job's body is one 16-byte append to a log in memory, from which
runs, repeated and missing ones are counted. Every run has a fresh database copied from the library's own
schema (SQLite: a new file; Redis: a new server), unless its method says otherwise. Before a run the harness
waits up to 5 s for a quiet machine (less than {quiet} cores busy); {noisy} of {runs} runs started on a
busier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The circumstances, for whoever reads the figures."""

    command: str
    date: str
    rounds: int
    scale: float
    machine: dict[str, str]
    postgres: str | None
    redis: str | None
    statements_are: str
    versions: dict[str, dict[str, str]]
    left_out: dict[str, str]
    busy_at_start: list[float]


def as_json(outcomes: Sequence[Outcome], setting: Setting) -> str:
    results = [_outcome_as_json(outcome) for outcome in outcomes]
    return json.dumps({"setting": asdict(setting), "workloads": results}, indent=2, ensure_ascii=False) + "\n"


def _outcome_as_json(outcome: Outcome) -> dict[str, object]:
    goals = [_goal_as_json(goal, outcome) for goal in outcome.goals]
    return asdict(outcome) | {"goals": goals, "exactly_once": outcome.exactly_once}


def _goal_as_json(goal: Goal, outcome: Outcome) -> dict[str, object]:
    values = goal.values(outcome.rounds)
    spread = Spread.of(values) if values else None
    return asdict(goal) | {
        "values": values,
        "median": spread.median if spread else None,
        "met": goal.holds(spread.median) if spread else None,
    }


def terminal(outcome: Outcome) -> str:
    """One workload as aligned plain text."""
    parts = [f"\n{outcome.title}  [{outcome.name}]", _aligned(_figures(outcome))]
    if goals := _goals(outcome):
        parts.append(_aligned(goals))
    parts += [f"  FAILED  {failure}" for failure in outcome.failures]
    return "\n".join(parts)


def markdown(outcomes: Sequence[Outcome], setting: Setting) -> str:
    """The page: method, circumstances, results."""
    return "\n\n".join([*_preface(outcomes, setting), *(_section(outcome) for outcome in outcomes)]) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _preface(outcomes: Sequence[Outcome], setting: Setting) -> Iterable[str]:
    yield "# Benchmarks"
    yield f"Measured on {setting.date} with\n\n```\n{setting.command}\n```"
    noisy = sum(busy >= machine.QUIET for busy in setting.busy_at_start)
    yield METHOD.format(
        rounds=setting.rounds, quiet=machine.QUIET, noisy=noisy, runs=len(setting.busy_at_start)
    )
    if setting.scale != 1:
        yield f"**A rehearsal at scale {setting.scale:g}: the figures mean nothing.**"
    if setting.postgres:
        settings = ", ".join(
            f"{name}={value}" for name, value in SETTINGS.items() if name != "listen_addresses"
        )
        yield f"PostgreSQL {setting.postgres}: {settings}; locale C; the rest default."
        yield f"Statements and queries are counted as {setting.statements_are}."
    if setting.redis:
        settings = ", ".join(
            f"{name}={value or 'none'}" for name, value in REDIS_SETTINGS.items() if name != "bind"
        )
        yield f"Redis {setting.redis}: {settings} (in memory only); a fresh server for every run."
    yield _markdown_table([["machine", ""], *([name, value] for name, value in setting.machine.items())])
    versions = [
        [library, ", ".join(f"{name} {version}" for name, version in found.items())]
        for library, found in setting.versions.items()
    ]
    yield _markdown_table([["library", "versions"], *versions])
    abouts = {name: about for outcome in outcomes for name, about in outcome.contenders.items()}
    yield _markdown_table([["contender", "settings"], *([name, about] for name, about in abouts.items())])
    if setting.left_out:
        yield "\n".join(["Left out:", "", *(f"- {name}: {why}" for name, why in setting.left_out.items())])


def _section(outcome: Outcome) -> str:
    parts = [f"## {outcome.title}", outcome.method, _markdown_table(_figures(outcome))]
    if goals := _goals(outcome):
        parts.append(_markdown_table(goals))
    parts += [f"- Failed: {failure.splitlines()[0]}" for failure in outcome.failures]
    return "\n\n".join(parts)


def _figures(outcome: Outcome) -> list[list[str]]:
    names = list(outcome.contenders)
    shown = [metric for metric in outcome.metrics if any(outcome.spread(name, metric.key) for name in names)]
    counted = any(outcome.total(name, "runs") is not None for name in names)
    rows = [["contender", *(metric.heading for metric in shown), *(["repeated/missing"] if counted else [])]]
    for name in names:
        cells = [_cell(outcome.spread(name, metric.key), metric) for metric in shown]
        rows.append([name, *cells, *([_counts(outcome, name)] if counted else [])])
    return rows


def _goals(outcome: Outcome) -> list[list[str]]:
    rows = [["goal", "measured", "wanted", "met"]]
    for goal in outcome.goals:
        if values := goal.values(outcome.rounds):
            spread = Spread.of(values)
            decimals = 0 if spread.median >= 1000 else 2 if spread.median >= 0.1 else 3
            met = "yes" if goal.holds(spread.median) else "NO"
            rows.append([goal.text, _spread(spread, decimals), goal.wanted, met])
    return rows if len(rows) > 1 else []


def _cell(spread: Spread | None, metric: Metric) -> str:
    return _spread(spread, metric.decimals) if spread else ""


def _spread(spread: Spread, decimals: int) -> str:
    median, low, high = (f"{value:,.{decimals}f}" for value in (spread.median, spread.low, spread.high))
    return median if spread.count == 1 else f"{median} ({low} to {high})"


def _counts(outcome: Outcome, name: str) -> str:
    runs = outcome.total(name, "runs")
    if runs is None:
        return ""
    return f"{outcome.total(name, 'repeated')}/{outcome.total(name, 'missing')} of {runs:,}"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _markdown_table(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])
