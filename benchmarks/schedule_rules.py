"""How long a schedule takes to find its next and its latest tick: `python benchmarks/schedule_rules.py`.

Each figure is the best of five rounds, from the stored text (read once, then remembered) to the tick, at
instants spread over four years. Reading a text for the first time is shown last.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from duly.schedule import Schedule
from duly.schedule.rules import parse_rule
from duly.schedule.schedule import _from_json

CASES = (
    ("@every 1h30m", "UTC", 0),
    ("@every 5m", "UTC", 60),
    ("*/5 * * * *", "UTC", 0),
    ("0 9 * * mon-fri", "UTC", 0),
    ("0 0 29 2 *", "UTC", 0),
    ("0 0 29 2 */7", "UTC", 0),
    ("*/10 * * * * *", "UTC", 0),
    ("*/5 * * * *", "Europe/Berlin", 0),
    ("0 9 * * mon-fri", "Europe/Berlin", 0),
    ("30 2 * * *", "America/New_York", 0),
    ("0 0 29 2 *", "America/New_York", 0),
)
START = 1_767_225_600_000_000
FOUR_YEARS = 4 * 365 * 86_400_000_000
ROUNDS = 5
CALLS = 5_000


def main() -> None:
    """Print a table, in microseconds."""
    instants = random.Random(0).sample(range(START, START + FOUR_YEARS), CALLS)
    print(f"{'rule':<18}{'zone':<18}{'jitter':>7}{'next':>9}{'latest':>9}{'first read':>12}   (µs)")
    for rule, zone, jitter in CASES:
        text = Schedule.make(rule, timezone=zone, jitter=jitter).to_json()
        after, latest, first = _measure(text, instants)
        print(f"{rule:<18}{zone:<18}{jitter or '':>7}{after:>9.2f}{latest:>9.2f}{first:>12.1f}")


def _measure(text: str, instants: list[int]) -> tuple[float, float, float]:
    read = Schedule.from_json
    return (
        _best(lambda at: read(text).next_after(at, anchor_us=START, key="a"), instants),
        _best(lambda at: read(text).latest_at(at, anchor_us=START, key="a"), instants),
        _best(lambda _: _read_afresh(text), instants[:200]),
    )


def _best(call: Callable[[int], object], instants: list[int]) -> float:
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for instant in instants:
            call(instant)
        rounds.append((time.perf_counter() - began) / len(instants) * 1e6)
    return min(rounds)


def _read_afresh(text: str) -> Schedule:
    parse_rule.cache_clear()
    _from_json.cache_clear()
    return Schedule.from_json(text)


if __name__ == "__main__":
    main()
