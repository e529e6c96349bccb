"""Results as a table in the terminal, as JSON and as a Markdown page."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import machine
from plots import plot
from postgres import SETTINGS
from redis_server import SETTINGS as REDIS_SETTINGS
from results import Goal, Metric, Outcome, Spread
from standing import standing

METHOD = """\
Each cell: median (lowest to highest) of the section's rounds, without the range where there was one.
Contenders take turns within a round and who goes first changes; a ratio is formed within a round, then the
median over the rounds is taken. Client, workers and server share the machine, over 127.0.0.1. A job's body
is one 16-byte append to a log in memory, from which runs, repeated and missing ones are counted. Every run
has a fresh database copied from the library's own schema (SQLite: a new file; Redis: a new server), unless
its method says otherwise. Before a run the harness waits up to 5 s for a quiet machine (less than {quiet}
cores busy); {noisy} of {runs} runs started on a busier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The circumstances, for whoever reads the figures."""

    commands: list[str]
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


def read(path: Path) -> tuple[list[Outcome], Setting]:
    """What an earlier run has written as JSON."""
    found = json.loads(path.read_text(encoding="utf-8"))
    outcomes = [
        Outcome(
            **{name: kept[name] for name in ("name", "title", "method", "contenders", "plotted", "failures")},
            metrics=tuple(Metric(**metric) for metric in kept["metrics"]),
            goals=tuple(
                Goal(**{part.name: goal[part.name] for part in fields(Goal)}) for goal in kept["goals"]
            ),
            rounds=kept["rounds"],
            date=kept.get("date") or found["setting"]["date"],
            processor=kept.get("processor") or found["setting"]["machine"]["processor"],
        )
        for kept in found["workloads"]
    ]
    return outcomes, Setting(**found["setting"])


def together(settings: Sequence[Setting]) -> Setting:
    """The circumstances of several runs on machines of one size, for one page."""
    last = settings[-1]
    processors = {each for setting in settings for each in setting.machine["processor"].split(" or ")}
    return replace(
        last,
        machine=last.machine | {"processor": " or ".join(sorted(processors))},
        commands=[command for setting in settings for command in setting.commands],
        rounds=max(setting.rounds for setting in settings),
        date=_span(date for setting in settings for date in setting.date.split(" to ")),
        postgres=next((setting.postgres for setting in settings if setting.postgres), None),
        redis=next((setting.redis for setting in settings if setting.redis), None),
        statements_are=next((setting.statements_are for setting in settings if setting.statements_are), ""),
        versions={name: found for setting in settings for name, found in setting.versions.items()},
        left_out={name: why for setting in settings for name, why in setting.left_out.items()},
        busy_at_start=[busy for setting in settings for busy in setting.busy_at_start],
    )


def _span(dates: Iterable[str]) -> str:
    """From the first day to the last."""
    first, *_, last = sorted({*dates}) * 2
    return first if first == last else f"{first} to {last}"


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


def markdown(outcomes: Sequence[Outcome], setting: Setting, plots: str | None = None) -> str:
    """The page: method, circumstances, results. `plots`: the folder of the plots, as seen from the page."""
    sections = (_section(outcome, plots) for outcome in outcomes)
    return "\n\n".join([*_preface(outcomes, setting), *_overview(outcomes), *sections]) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _preface(outcomes: Sequence[Outcome], setting: Setting) -> Iterable[str]:
    yield "# Benchmarks"
    how = f" with `{setting.commands[0]}`" if len(setting.commands) == 1 else ", in several runs"
    yield f"Measured on {setting.date}{how}. Each section names the command that measures it again."
    noisy = sum(busy >= machine.QUIET for busy in setting.busy_at_start)
    yield METHOD.format(quiet=machine.QUIET, noisy=noisy, runs=len(setting.busy_at_start))
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
    yield markdown_table([["machine", ""], *([name, value] for name, value in setting.machine.items())])
    versions = [
        [library, ", ".join(f"{name} {version}" for name, version in found.items())]
        for library, found in setting.versions.items()
    ]
    yield markdown_table([["library", "versions"], *versions])
    abouts = {name: about for outcome in outcomes for name, about in outcome.contenders.items()}
    yield markdown_table([["contender", "settings"], *([name, about] for name, about in abouts.items())])
    if setting.left_out:
        yield "\n".join(["Left out:", "", *(f"- {name}: {why}" for name, why in setting.left_out.items())])


def _overview(outcomes: Sequence[Outcome]) -> Iterable[str]:
    compared = standing(outcomes)
    if len(compared) > 1:
        yield "## Who is first"
        yield (
            "Against the best of the peers that keep their jobs on the same kind of database. The ratio is"
            " formed within a round. Those on Redis, whose jobs are in memory, are in the tables below."
        )
        yield markdown_table(compared)
    goals = [[outcome.title, *row] for outcome in outcomes for row in _goals(outcome)[1:]]
    missed = [row[:-1] for row in goals if row[-1] == "NO"]
    if goals:
        yield "## Goals"
        yield f"{len(goals) - len(missed)} of {len(goals)} met; each is in the section it belongs to."
    if missed:
        yield "Missed:"
        yield markdown_table([["where", "goal", "measured", "wanted"], *missed])


def _section(outcome: Outcome, plots: str | None) -> str:
    rounds = f"{len(outcome.rounds)} rounds" if len(outcome.rounds) > 1 else "one round"
    command = f"python benchmarks/run.py --rounds {len(outcome.rounds)} --only {outcome.name}"
    measured = f"{outcome.method} {outcome.date}, {rounds}, {outcome.processor}: `{command}`"
    parts = [f"## {outcome.title}", measured]
    if plots is not None and plot(outcome):
        parts.append(f"![{outcome.title}]({plots}/{outcome.name}.svg)")
    parts.append(markdown_table(_figures(outcome)))
    if goals := _goals(outcome):
        parts.append(markdown_table(goals))
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


def markdown_table(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])
