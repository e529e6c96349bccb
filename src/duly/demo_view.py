"""Shows the demo's jobs live: a `rich` table or a plain one redrawn in a terminal, else a line per event."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, Any, Protocol

import click

from duly.cli.output import STATE_COLOURS
from duly.cli.text import clean, plain_table, terminal_width
from duly.domain.records import WorkerRecord
from duly.domain.states import State
from duly.job import Job

GROUPED = ("greet", "deliver")
BAR = 20
Row = tuple[str, str, str, str]
HEADERS = ("JOB", "STATE", "TRY", "")


class View(Protocol):
    """Something that shows jobs."""

    def __enter__(self) -> View:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """End."""
        ...

    def show(self, jobs: Sequence[Job[Any]], workers: Sequence[WorkerRecord], seconds: float) -> None:
        """Show how the jobs stand."""
        ...

    def show_burst(self, done: int, of: int, seconds: float) -> None:
        """Show how far the burst is."""
        ...

    def close(self) -> None:
        """Give the terminal back."""
        ...


def view_for(out: IO[str]) -> View:
    """Choose by what this is shown on."""
    if not out.isatty():
        return Events()
    try:
        return RichScreen()
    except ImportError:
        return PlainScreen(out)


# -- what is shown ----------------------------------------------------------------------------------------------------


def rows_of(jobs: Sequence[Job[Any]]) -> list[Row]:
    """Return a line for every job of interest, and one for each crowd."""
    in_order = sorted(jobs, key=lambda job: job.id)
    rows = [(call_of(job), str(job.state), _tries(job), _detail(job)) for job in in_order if job.task not in GROUPED]
    for task in GROUPED:
        group = [job for job in in_order if job.task == task]
        done = sum(job.state.terminal for job in group)
        state = State.SUCCEEDED if done == len(group) else State.RUNNING if done else State.QUEUED
        rows.append(
            (f"{task} x {len(group)}", str(state), "", bar(done / max(1, len(group))) + f" {done}/{len(group)}")
        )
    return rows


def call_of(job: Job[Any]) -> str:
    """Return a job as the call it stands for."""
    first = next(iter(job.args.values()), "")
    return clean(f"{job.task}({first if job.task != 'crash' else ''})", 32)


def _tries(job: Job[Any]) -> str:
    return f"{job.attempts}/{job.max_attempts}" if job.attempts else ""


def _detail(job: Job[Any]) -> str:
    match job.state:
        case State.RUNNING if job.progress is not None:
            return f"{bar(job.progress)} {clean(job.progress_text or '')}"
        case State.SCHEDULED:
            return "tries again soon" if job.attempts else "later"
        case State.CANCELLED | State.FAILED:
            return clean(job.reason or "", 40)
        case State.SUCCEEDED if job.task == "crash" and job.attempts > 1:
            return "killed its worker, ran again in another"
        case _ if job.record.crashes:
            return "its worker was killed; again"
        case _:
            return ""


def bar(share: float) -> str:
    """Return a bar that is filled this far."""
    full = round(share * BAR)
    return "█" * full + "░" * (BAR - full)


def _title(workers: Sequence[WorkerRecord], jobs: Sequence[Job[Any]], seconds: float) -> str:
    ended = sum(job.state.terminal for job in jobs)
    pids = ", ".join(str(worker.process.pid) for worker in workers) or "starting"
    return f"duly demo  {seconds:4.1f} s   {ended}/{len(jobs)} jobs ended   worker processes: {pids}"


def _burst_line(done: int, of: int, seconds: float) -> str:
    return f"burst of {of:,}   {bar(done / of)} {done:,}   {seconds:.1f} s"


# -- where it is shown ------------------------------------------------------------------------------------------------


class Events:
    """Without a terminal: one line per event."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int]] = {}
        self._pids: set[int] = set()
        self._seconds = 0.0

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, jobs: Sequence[Job[Any]], workers: Sequence[WorkerRecord], seconds: float) -> None:
        """Print what changed since the last time."""
        pids = {worker.process.pid for worker in workers}
        for pid in sorted(pids - self._pids):
            self._print(seconds, f"worker process {pid} is there")
        for pid in sorted(self._pids - pids):
            self._print(seconds, f"worker process {pid} is gone")
        self._pids = pids
        for task in GROUPED:
            group = [job for job in jobs if job.task == task]
            done = sum(job.state.terminal for job in group)
            if self._seen.get(task) != ("", done):
                self._seen[task] = ("", done)
                self._print(seconds, f"{f'{task} x {len(group)}':<32} {done} done")
        for job in sorted(jobs, key=lambda job: job.id):
            if job.task in GROUPED:
                continue
            now = (str(job.state), job.attempts)
            if self._seen.get(job.id) != now:
                self._seen[job.id] = now
                tries = f" (run {job.attempts})" if job.attempts > 1 else ""
                self._print(seconds, f"{call_of(job):<32} {job.state}{tries} {_detail(job)}".rstrip())
        self._seconds = seconds

    def show_burst(self, done: int, of: int, seconds: float) -> None:
        """Print the beginning and the end."""
        if done in (0, of):
            self._print(self._seconds + seconds, f"burst: {done:,} of {of:,}")

    def close(self) -> None:
        """Nothing to give back."""

    def _print(self, seconds: float, text: str) -> None:
        print(f"{seconds:5.1f} s  {text}", flush=True)


class PlainScreen:
    """A terminal: draws over what it drew before."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._height = 0
        self._frame = ""
        self._open = False

    def __enter__(self) -> View:
        self._open = True
        self._out.write("\x1b[?25l")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, jobs: Sequence[Job[Any]], workers: Sequence[WorkerRecord], seconds: float) -> None:
        """Draw the table."""
        width = terminal_width()
        lines = plain_table(HEADERS, rows_of(jobs), width=width - 1).split("\n")
        lines = [lines[0], *(_colour_states(line) for line in lines[1:])]
        self._frame = "\n".join([click.style(_title(workers, jobs, seconds)[: width - 1], bold=True), "", *lines])
        self._draw(self._frame)

    def show_burst(self, done: int, of: int, seconds: float) -> None:
        """Draw a line below the table."""
        self._draw(f"{self._frame}\n{_burst_line(done, of, seconds)}")

    def close(self) -> None:
        """Show the cursor again."""
        if self._open:
            self._open = False
            self._out.write("\x1b[?25h")
            self._out.flush()

    def _draw(self, text: str) -> None:
        back = f"\x1b[{self._height}A\r" if self._height else ""
        lines = text.split("\n")
        self._out.write(back + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._height = len(lines)


def _colour_states(line: str) -> str:
    for state in State:
        if f"  {state}" in line:
            return line.replace(f"  {state}", "  " + click.style(str(state), fg=STATE_COLOURS[state]), 1)
    return line


class RichScreen:
    """A terminal, with `rich` installed."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=sys.stdout, highlight=False), auto_refresh=False)
        self._frame: list[Any] = []

    def __enter__(self) -> View:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, jobs: Sequence[Job[Any]], workers: Sequence[WorkerRecord], seconds: float) -> None:
        """Draw the table."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for header in HEADERS:
            table.add_column(header, no_wrap=True)
        for row in rows_of(jobs):
            table.add_row(*(Text(cell, style=STATE_COLOURS.get(cell, "")) for cell in row))
        self._frame = [Text(_title(workers, jobs, seconds), style="bold"), Text(), table]
        self._live.update(Group(*self._frame), refresh=True)

    def show_burst(self, done: int, of: int, seconds: float) -> None:
        """Draw a line below the table."""
        from rich.console import Group
        from rich.text import Text

        self._live.update(Group(*self._frame, Text(_burst_line(done, of, seconds))), refresh=True)

    def close(self) -> None:
        """Leave the last picture where it is."""
        self._live.stop()
