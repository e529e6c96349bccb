"""Charts as SVG, drawn on the server: shapes only. Words and numbers stand beside them as text.

A chart is stretched to the width it is given; strokes keep theirs. Colours are classes of the stylesheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 600.0, 100.0
_OPEN = Markup(
    '<svg class="chart {}" viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label="{}" '
    'focusable="false">'
)
_CLOSE = Markup("</svg>")
_RECT = Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}">{}</rect>')
_LINE = Markup('<path class="line {}" d="{}" vector-effect="non-scaling-stroke"/>')
_AREA = Markup('<path class="area {}" d="{}"/>')
_TITLE = Markup("<title>{}</title>")
_GRID = Markup('<path class="grid" d="{}" vector-effect="non-scaling-stroke"/>')


class Bar(NamedTuple):
    """One bar: parts from the bottom up, as (class, amount), and what it says on hover."""

    parts: tuple[tuple[str, float], ...]
    title: str

    @property
    def total(self) -> float:
        """How high it is."""
        return sum(amount for _, amount in self.parts)


def nice(value: float) -> float:
    """The next round number at or above."""
    if value <= 1:
        return 1
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)


def bars(data: Sequence[Bar], label: str, *, top: float | None = None, kind: str = "") -> Markup:
    """Stacked bars."""
    high = top or nice(max((bar.total for bar in data), default=1))
    step = WIDTH / max(1, len(data))
    shapes = [_grid()]
    for n, bar in enumerate(data):
        title, y, x = _TITLE.format(bar.title), HEIGHT, n * step
        shapes.append(_RECT.format("touch", x, 0, step, HEIGHT, title))
        for name, amount in bar.parts:
            if amount > 0:
                height = max(1.5, amount / high * HEIGHT)
                y = max(0.0, y - height)
                shapes.append(_RECT.format(name, x + step * 0.12, y, step * 0.76, height, title))
    return _OPEN.format(kind, label) + Markup("").join(shapes) + _CLOSE


class Series(NamedTuple):
    """A line: a class, and points as (place from 0 to 1, height from 0 to 1); None is a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]
    filled: bool = False


def lines(series: Sequence[Series], label: str, *, kind: str = "") -> Markup:
    """Lines, with gaps where nothing is known."""
    shapes = [_grid()]
    for each in series:
        for run in _unbroken(each.points):
            places = [(x * WIDTH, HEIGHT - y * (HEIGHT - 2) - 1) for x, y in run]
            if len(places) == 1:
                places.append((places[0][0] + 2, places[0][1]))
            drawn = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            if each.filled:
                shapes.append(_AREA.format(each.name, f"{drawn}L{places[-1][0]:.1f} 100L{places[0][0]:.1f} 100Z"))
            shapes.append(_LINE.format(each.name, drawn))
    return _OPEN.format(kind, label) + Markup("").join(shapes) + _CLOSE


def _grid() -> Markup:
    return _GRID.format("M0 0.5H600M0 50H600M0 99.5H600")


def _unbroken(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, min(1.0, max(0.0, y))))
    return [run for run in runs if run]


def spark(values: Sequence[float], label: str) -> Markup:
    """A small line of what happened."""
    high = max(max(values, default=0), 1)
    points = [(n / max(1, len(values) - 1), value / high) for n, value in enumerate(values)]
    return lines([Series("ran", points, filled=True)], label, kind="spark")


_METER = Markup(
    '<svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
    '<rect class="track" width="100" height="6"/><rect class="{}" width="{:.1f}" height="6"/></svg>'
)


def meter(share: float, name: str = "ran") -> Markup:
    """How much of something is taken, from 0 to 1; the number stands beside it."""
    return _METER.format(name, min(1.0, max(0.0, share)) * 100)
