"""A workload as a picture: a bar per contender, and the range of its rounds, on light and dark pages."""

import math
from html import escape

from results import Metric, Outcome, Spread

WIDTH, LINE, LEFT, RIGHT, TOP = 760, 26, 190, 130, 44
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .unit { fill: #57606a }
.ours { fill: #0969da } .theirs { fill: #8c959f } .limit { fill: #bf8700 }
.range { stroke: #24292f; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .unit { fill: #9198a1 } .range { stroke: #e6edf3 }
  .ours { fill: #4493f8 } .theirs { fill: #656c76 } .limit { fill: #d29922 }
}"""


def plot(outcome: Outcome) -> str | None:
    """Draw the metric that the workload is about; None if it has none."""
    metric = next((one for one in outcome.metrics if one.key == outcome.plotted), None)
    if metric is None:
        return None
    found = {name: outcome.spread(name, metric.key) for name in outcome.contenders}
    spreads = {name: spread for name, spread in found.items() if spread is not None}
    return _bars(outcome, metric, spreads) if spreads else None


def _bars(outcome: Outcome, metric: Metric, spreads: dict[str, Spread]) -> str:
    scale = _Scale([spread.high for spread in spreads.values()])
    rows = []
    for place, (name, spread) in enumerate(spreads.items()):
        middle = TOP + place * LINE + LINE / 2
        end = scale.x(spread.median)
        label = max(end, scale.x(spread.high)) + 8
        rows += [
            f'<text x="{LEFT - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{_kind(outcome, name)}" x="{LEFT}" y="{middle - 8:.0f}"'
            f' width="{max(1, end - LEFT):.0f}" height="16"/>',
            f'<path class="range" d="M{scale.x(spread.low):.0f} {middle:.0f}H{scale.x(spread.high):.0f}"/>',
            f'<text x="{label:.0f}" y="{middle + 4:.0f}">{spread.median:,.{metric.decimals}f}</text>',
        ]
    height = TOP + len(spreads) * LINE + 12
    unit = f"{metric.heading}, median and range{scale.told}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}">',
            f"<title>{escape(outcome.title)}: {escape(metric.heading)}</title>",
            f"<style>{STYLE}</style>",
            f'<text class="title" x="8" y="18">{escape(outcome.title.replace("`", ""))}</text>',
            f'<text class="unit" x="8" y="36">{escape(unit)}</text>',
            *rows,
            "</svg>\n",
        ]
    )


class _Scale:
    """From values to places: in proportion, or by powers of ten where some bars would not be seen."""

    def __init__(self, values: list[float]) -> None:
        self._most = max(values)
        least = min(value for value in values if value > 0) if any(value > 0 for value in values) else 1.0
        self._by_tens = self._most / least > 100
        self._least = 10.0 ** math.floor(math.log10(least)) / 2
        self.told = "; by powers of ten" if self._by_tens else ""

    def x(self, value: float) -> float:
        if self._most <= 0 or value <= 0:
            return LEFT
        part = value / self._most
        if self._by_tens:
            part = math.log10(value / self._least) / math.log10(self._most / self._least)
        return LEFT + max(0.0, part) * (WIDTH - LEFT - RIGHT)


def _kind(outcome: Outcome, name: str) -> str:
    library = outcome.contenders[name].split(":")[0]
    return {"duly": "ours", "bare": "limit"}.get(library, "theirs")
