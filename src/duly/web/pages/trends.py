"""The four charts of the first page: what ran, what waits and runs, what failed, how long jobs waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.domain.records import MINUTE_US
from duly.store.ops_pages import Minute, Snapshot
from duly.web.pages import charts, waits, words
from duly.web.pages.charts import Bar, Series
from duly.web.pages.figures import for_good, rate, rate_text, total, whole_hour
from duly.web.pages.live import LOOK_BACK, Sample


def trends(snapshot: Snapshot, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Each chart with its title, what it amounts to in a word, and its key."""
    minutes = whole_hour(snapshot)
    return [_throughput(minutes, snapshot), _depth(samples, snapshot), _failed(minutes), _waits(minutes)]


def _clock(at: int) -> str:
    return words.instant(at).strftime("%H:%M UTC")


def _throughput(minutes: Sequence[Minute], snapshot: Snapshot) -> dict[str, Any]:
    data = [
        Bar(
            (
                ("succeeded", each.succeeded),
                ("other", max(0, each.runs - each.succeeded - each.failed)),
                ("failed", each.failed),
            ),
            f"{_clock(each.at)}: {each.runs:,} runs, {each.failed:,} failed",
        )
        for each in minutes
    ]
    now, ran = rate([each.runs for each in minutes], snapshot.now), sum(each.runs for each in minutes)
    top = charts.nice(max(bar.total for bar in data))
    return {
        "title": "Throughput",
        "value": rate_text(now),
        "note": f"{words.number(ran)} runs in the last hour",
        "svg": charts.bars(data, f"Runs in each of the last 60 minutes: {ran:,} in all, now {rate_text(now)}", top=top),
        "top": words.number(top),
        "key": (("succeeded", "succeeded"), ("other", "retried or other"), ("failed", "failed")),
    }


def _failed(minutes: Sequence[Minute]) -> dict[str, Any]:
    data = [
        Bar(
            (("failed", for_good(each)), ("retried", each.retried)),
            f"{_clock(each.at)}: {for_good(each):,} failed for good, {each.retried:,} to be retried",
        )
        for each in minutes
    ]
    failed, runs = sum(map(for_good, minutes)), sum(each.runs for each in minutes)
    retried = sum(each.retried for each in minutes)
    top = charts.nice(max(bar.total for bar in data))
    share = f"{failed / runs:.1%} of runs; " if runs else ""
    return {
        "title": "Failed",
        "value": words.number(failed),
        "note": f"{share}{words.number(retried)} retried in the last hour",
        "svg": charts.bars(
            data, f"Failures in each of the last 60 minutes: {failed:,} for good, {retried:,} retried", top=top
        ),
        "top": words.number(top),
        "key": (("failed", "failed for good"), ("retried", "retried")),
    }


def _waits(minutes: Sequence[Minute]) -> dict[str, Any]:
    whole = waits.added([each.waits for each in minutes])
    p50, p99 = waits.percentile(whole, 0.5), waits.percentile(whole, 0.99)
    series = []
    for name, share in (("p99", 0.99), ("p50", 0.5)):
        points = [
            (n / (len(minutes) - 1), waits.height(waits.percentile(each.waits, share)))
            for n, each in enumerate(minutes)
        ]
        series.append(Series(name, points))
    half, most = words.span(p50), words.span(p99)
    label = f"Time from due to start in each of the last 60 minutes: half within {half}, 99 % within {most}"
    return {
        "title": "Wait before start",
        "value": half,
        "note": f"half waited no longer; 99 % no longer than {most}",
        "svg": charts.lines(series, label),
        "top": "1d",
        "key": (("p50", "p50"), ("p99", "p99")),
        "scale": "log scale from 1 ms",
    }


def _depth(samples: Sequence[Sample], snapshot: Snapshot) -> dict[str, Any]:
    begin = snapshot.now - LOOK_BACK * MINUTE_US
    top = charts.nice(max((max(each.waiting, each.running) for each in samples), default=1))
    series = []
    for name in ("waiting", "running"):
        points: list[tuple[float, float | None]] = []
        for n, each in enumerate(samples):
            if n and each.at - samples[n - 1].at > 2 * MINUTE_US:
                points.append((0.0, None))
            points.append(((each.at - begin) / (LOOK_BACK * MINUTE_US), getattr(each, name) / top))
        series.append(Series(name, points, filled=name == "waiting"))
    waiting, running = total(snapshot.waiting), total(snapshot.running)
    return {
        "title": "Waiting and running",
        "value": f"{words.number(waiting)} / {words.number(running)}",
        "note": "waiting / running, while somebody looked",
        "svg": charts.lines(
            series, f"Jobs that wait and run in the last 60 minutes: now {waiting:,} wait, {running:,} run"
        ),
        "top": words.number(top),
        "key": (("waiting", "waiting"), ("running", "running")),
    }
