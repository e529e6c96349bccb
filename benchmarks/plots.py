"""A workload as a picture: a bar per contender, and the range of its rounds, on light and dark pages."""

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
    per_unit = (WIDTH - LEFT - RIGHT) / (max(spread.high for spread in spreads.values()) or 1.0)
    rows = []
    for place, (name, spread) in enumerate(spreads.items()):
        middle = TOP + place * LINE + LINE / 2
        low, end, high = (LEFT + value * per_unit for value in (spread.low, spread.median, spread.high))
        rows += [
            f'<text x="{LEFT - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{_kind(outcome, name)}" x="{LEFT}" y="{middle - 8:.0f}"'
            f' width="{max(1, end - LEFT):.0f}" height="16"/>',
            f'<path class="range" d="M{low:.0f} {middle:.0f}H{high:.0f}"/>',
            f'<text x="{high + 8:.0f}" y="{middle + 4:.0f}">{spread.median:,.{metric.decimals}f}</text>',
        ]
    height = TOP + len(spreads) * LINE + 12
    unit = f"{metric.heading}, median and range"
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


def _kind(outcome: Outcome, name: str) -> str:
    library = outcome.contenders[name].split(":")[0]
    return {"duly": "ours", "bare": "limit"}.get(library, "theirs")
