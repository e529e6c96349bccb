"""What `duly top` shows: collects the figures of one moment, and draws them to fit a terminal."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from duly.alerting import AlertRecord
from duly.app import Duly
from duly.cli.apps import address_of
from duly.cli.text import age, clean, plural, relative, size, tail
from duly.job import Job
from duly.metrics.observe import MINUTE_US, Observation, Observer, first_minute
from duly.store import ops_observe
from duly.store.ops_observe import Ran

if TYPE_CHECKING:
    from rich.console import Group as Drawn

SORTS = ("waiting", "running", "failed", "oldest", "runs", "name")
BARS = " ▁▂▃▄▅▆▇█"
MOST_ALERTS, MOST_FAILURES = 3, 4


@dataclass(slots=True)
class Line:
    """One queue and task."""

    queue: str
    task: str
    waiting: int = 0
    running: int = 0
    scheduled: int = 0
    oldest: float = 0.0
    ran: Ran = field(default_factory=Ran)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Everything that is shown of one moment."""

    database: str
    at: datetime
    lines: list[Line]
    parked: int
    workers: int
    slots: int
    memory_bytes: int | None
    """What the workers' processes have together; None if none of them says."""
    rate: float | None
    """Runs in a second since the last frame; None for the first one."""
    minutes: list[int]
    """Runs in each of the last 15 whole minutes."""
    failed_ratio: float
    alerts: list[AlertRecord]
    failures: list[tuple[str, str, datetime, str]]
    age: float

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        tasks = [
            {
                "queue": line.queue,
                "task": line.task,
                "waiting": line.waiting,
                "running": line.running,
                "scheduled": line.scheduled,
                "oldest_seconds": line.oldest,
                "runs_15m": line.ran.runs,
                "failed_ratio": line.ran.failed_ratio,
                "wait_p99_seconds": line.ran.wait_quantile(0.99),
            }
            for line in self.lines
        ]
        failures = [{"id": job, "task": task, "at": at, "error": error} for job, task, at, error in self.failures]
        return {
            "database": self.database,
            "at": self.at,
            "tasks": tasks,
            "parked": self.parked,
            "workers": self.workers,
            "slots": self.slots,
            "memory_bytes": self.memory_bytes,
            "runs_per_minute": self.minutes,
            "failed_ratio": self.failed_ratio,
            "alerts": [alert.to_dict() for alert in self.alerts],
            "failures": failures,
        }


class Camera:
    """Takes one frame after another."""

    def __init__(self, app: Duly, *, every: float = 2.0) -> None:
        self._app = app
        self._observer = Observer(app.store, keep=every / 2)
        self._before: tuple[float, int] | None = None

    def take(self) -> Frame:
        """Take a frame, as of now or of some seconds ago where a look takes long."""
        app, seen = self._app, self._observer.observe()
        lines = _lines(seen)
        now = seen.standing.now
        minutes = app.store.database.read(lambda: ops_observe.each_minute(first_minute(now)))
        by_minute = {at: runs for at, runs, _, _ in minutes}
        total = _together(lines)
        failures = [
            (job.id, job.task, job.finished_at or datetime.now(UTC), self._why(job))
            for job in app.list(state="failed", limit=MOST_FAILURES)
        ]
        return Frame(
            database=address_of(app),
            at=datetime.now(UTC),
            lines=lines,
            parked=sum(seen.standing.parked.values()),
            workers=len(seen.workers),
            slots=sum(worker.slots for worker in seen.workers),
            memory_bytes=_memory(seen),
            rate=self._rate(sum(by_minute.values())),
            minutes=[by_minute.get(at, 0) for at in range(first_minute(now), now - now % MINUTE_US, MINUTE_US)],
            failed_ratio=total.failed_ratio,
            alerts=app.alerts(),
            failures=failures,
            age=seen.age,
        )

    def _why(self, job: Job[Any]) -> str:
        """Why a job failed: for a poison job that it is one, else the last error."""
        reason, run = job.record.reason or "", self._app.store.last_run(job.id)
        if reason.startswith("poison") or run is None or not run.error:
            return reason
        return f"{run.error_kind}: {run.error}"

    def _rate(self, runs: int) -> float | None:
        """Runs in a second since the frame before. The window moves on by the minute, so now and then there is none."""
        at, before = time.monotonic(), self._before
        self._before = (at, runs)
        if before is None or runs < before[1] or at - before[0] < 0.2:
            return None
        return (runs - before[1]) / (at - before[0])


def _memory(seen: Observation) -> int | None:
    said = [worker.memory_bytes for worker in seen.workers if worker.memory_bytes is not None]
    return sum(said) if said else None


def _together(lines: Sequence[Line]) -> Ran:
    total = Ran()
    for line in lines:
        total = total.plus(line.ran)
    return total


def _lines(seen: Observation) -> list[Line]:
    found: dict[tuple[str, str], Line] = {}

    def line(queue: str, task: str) -> Line:
        return found.setdefault((queue, task), Line(queue, task))

    now = seen.standing.now
    for key, waiting in seen.standing.waiting.items():
        each = line(key.queue, key.task)
        each.waiting += waiting.jobs
        each.oldest = max(each.oldest, (now - waiting.oldest_at) / 1e6)
    for key, group in seen.standing.running.items():
        line(key.queue, key.task).running += group.jobs
    for key, n in seen.standing.scheduled.items():
        line(key.queue, key.task).scheduled += n
    for key, ran in seen.ran.items():
        each = line(key.queue, key.task)
        each.ran = each.ran.plus(ran)
    return sorted(found.values(), key=lambda each: (each.queue, each.task))


def ordered(lines: Sequence[Line], by: str) -> list[Line]:
    """The lines with the most first."""
    return sorted(lines, key=lambda line: (-_weight(line, by), line.queue, line.task))


def _weight(line: Line, by: str) -> float:
    match by:
        case "waiting" | "running" | "oldest":
            return float(getattr(line, by))
        case "failed":
            return line.ran.failed + line.ran.crashed
        case "runs":
            return line.ran.runs
        case _:
            return 0


# -- drawing ----------------------------------------------------------------------------------------------------------


def draw(frame: Frame, *, width: int, height: int, sort: str, paused: bool = False, keys: bool = True) -> Drawn:
    """The frame as rich draws it, no larger than the terminal."""
    from rich.console import Group
    from rich.text import Text

    alerts, failures = frame.alerts[:MOST_ALERTS], frame.failures[:MOST_FAILURES]
    below = (len(alerts) + 1 if alerts else 0) + (len(failures) + 1 if failures else 0) + int(keys)
    room = max(1, height - 6 - below)
    parts: list[Any] = [*_head(frame, width, paused=paused), Text(), _table(frame, width, room, sort)]
    if alerts:
        parts.append(Text("alerts", style="bold red"))
        parts += [_one_line(f"  {each.rule}: {each.message}", width, "red") for each in alerts]
    if failures:
        parts.append(Text("failed last", style="bold"))
        for job, task, at, error in failures:
            text = f"  {tail(job)}  {clean(task, 24)}  {relative(at, frame.at)}  {clean(error, 200)}"
            parts.append(_one_line(text, width, ""))
    if keys:
        word = "go on" if paused else "pause"
        parts.append(_one_line(f"q quit   p {word}   tab sort by: {sort}", width, "dim"))
    return Group(*parts)


def _head(frame: Frame, width: int, *, paused: bool) -> list[Any]:
    from rich.text import Text

    sums: dict[str, int] = defaultdict(int)
    for line in frame.lines:
        for name in ("waiting", "running", "scheduled"):
            sums[name] += getattr(line, name)
    when = f"{frame.at.astimezone():%H:%M:%S}" + (f", {frame.age:.0f} s old" if frame.age >= 10 else "")
    title = f"duly  {clean(frame.database, max(10, width - 40))}  {when}" + ("  PAUSED" if paused else "")
    rate = "" if frame.rate is None else f"{frame.rate:,.1f}/s, "
    last = frame.minutes[-1] if frame.minutes else 0
    flow = f"{rate}{last:,} runs in the last minute, {frame.failed_ratio:.1%} failed in 15 min  {_spark(frame.minutes)}"
    place = (
        f"{sums['waiting']:,} wait, {sums['running']:,} run, {sums['scheduled']:,} scheduled, {frame.parked:,} parked"
    )
    crew = f"{plural(frame.workers, 'worker')}, {plural(frame.slots, 'slot')}"
    crew += "" if frame.memory_bytes is None else f", {size(frame.memory_bytes)}"
    style = "" if frame.workers or not sums["waiting"] else "bold red"
    return [
        _one_line(title, width, "bold"),
        _one_line(flow, width, ""),
        Text.assemble((f"{place}   "), (crew, style), no_wrap=True, overflow="ellipsis", end="\n"),
    ]


def _table(frame: Frame, width: int, room: int, sort: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    if not frame.lines:
        return Text("nothing waits, is scheduled or runs, and nothing ran in the last 15 minutes", style="dim")
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0), width=width)
    narrow = width < 100
    table.add_column("QUEUE", no_wrap=True, overflow="ellipsis", ratio=2)
    table.add_column("TASK", no_wrap=True, overflow="ellipsis", ratio=3)
    heads = ["WAIT", "RUN", "SCHED", "OLDEST", "RUNS15", "FAIL", "P99"]
    for head in heads if narrow else ["WAITING", "RUNNING", "SCHEDULED", "OLDEST", "RUNS/15M", "FAILED", "WAIT P99"]:
        table.add_column(head, justify="right", no_wrap=True)
    lines = ordered(frame.lines, sort)
    shown = lines if len(lines) <= room else lines[: max(1, room - 1)]
    for line in shown:
        failed = line.ran.failed_ratio
        table.add_row(
            clean(line.queue),
            clean(line.task),
            _number(line.waiting),
            Text(_number(line.running), style="green" if line.running else ""),
            _number(line.scheduled),
            _seconds(line.oldest) if line.waiting else "-",
            _number(line.ran.runs),
            Text(f"{failed:.0%}" if line.ran.runs else "-", style="red" if failed > 0.1 else ""),
            _seconds(line.ran.wait_quantile(0.99)) if line.ran.runs else "-",
        )
    if len(shown) < len(lines):
        table.add_row("", Text(f"and {len(lines) - len(shown)} more", style="dim"))
    return table


def _number(n: int) -> str:
    """A number in at most six characters."""
    if n < 100_000:
        return f"{n:,}"
    return f"{n / 1e3:,.0f}k" if n < 10_000_000 else f"{n / 1e6:,.0f}M"


def _seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
    return age(int(seconds) * 1_000_000) if seconds < 3600 else age(int(seconds // 60) * 60_000_000)


def _spark(values: Sequence[int]) -> str:
    most = max(values, default=0)
    return "".join(BARS[-(-n * (len(BARS) - 1) // most)] if most else BARS[0] for n in values)


def _one_line(text: str, width: int, style: str) -> Any:
    from rich.text import Text

    return Text(clean(text, width), style=style, no_wrap=True, overflow="ellipsis")
