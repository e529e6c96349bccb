"""When an alert starts, goes on, calms down and ends: decided from values, without flapping."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.alerts import Alert, Reading, Silence, decide

MINUTE = 60_000_000
CLEAR = MINUTE


def reading(value: float, *, rule: str = "depth", threshold: float = 100) -> Reading:
    return Reading(rule, "queue mail", value, threshold, f"{value} wait")


def alert(**values: Any) -> Alert:
    given = {"id": "a", "rule": "depth", "subject": "queue mail", "queue": "mail", "task": None, "value": 200.0}
    given |= {"threshold": 100.0, "message": "", "started_at": 0, "seen_at": 0, "told": True}
    return Alert(**{**given, **values})


def outcome(active: list[Alert], readings: list[Reading], *silences: Silence, now: int = 10 * MINUTE) -> list[str]:
    """What is decided, in a word each."""
    found = decide(active, readings, silences, now=now, clear_after_us=CLEAR)
    words = [f"started {'loud' if loud else 'silent'}" for _, loud in found.started]
    words += [f"kept{' told now' if loud else ''}" for _, _, loud in found.kept]
    return words + ["calmed" for _ in found.calmed] + ["ended" for _ in found.ended]


def silence(rule: str | None = "depth", subject: str | None = None) -> Silence:
    return Silence("s", rule, subject, 0, 99 * MINUTE, None, None)


@pytest.mark.requirement("C13")
def test_it_starts_above_the_threshold_not_at_it() -> None:
    assert outcome([], [reading(101)]) == ["started loud"]
    assert outcome([], [reading(100)]) == []


@pytest.mark.requirement("C13")
def test_it_goes_on_near_the_threshold_and_calms_down_well_below_it() -> None:
    assert outcome([alert()], [reading(81)]) == ["kept"]
    assert outcome([alert()], [reading(80)]) == ["calmed"]
    assert outcome([alert()], []) == ["calmed"]


@pytest.mark.requirement("C13")
def test_it_ends_when_it_has_been_well_for_long_enough() -> None:
    assert outcome([alert(ok_since=9 * MINUTE + 1)], []) == []
    assert outcome([alert(ok_since=9 * MINUTE)], []) == ["ended"]
    assert outcome([alert(ok_since=1)], [reading(90)]) == ["kept"]


def test_where_less_is_worse_it_is_the_other_way_round() -> None:
    assert outcome([], [reading(99, rule="disk_free")]) == ["started loud"]
    assert outcome([], [reading(100, rule="disk_free")]) == []
    active = alert(rule="disk_free")
    assert outcome([active], [reading(124, rule="disk_free")]) == ["kept"]
    assert outcome([active], [reading(126, rule="disk_free")]) == ["calmed"]


def test_nobody_is_told_of_what_is_silenced_until_the_silence_ends() -> None:
    assert outcome([], [reading(200)], silence()) == ["started silent"]
    assert outcome([], [reading(200)], silence(None, "queue mail")) == ["started silent"]
    assert outcome([], [reading(200)], silence("running"), silence(None, "queue other")) == ["started loud"]
    quiet = alert(told=False)
    assert outcome([quiet], [reading(200)], silence()) == ["kept"]
    assert outcome([quiet], [reading(200)]) == ["kept told now"]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=60))
def test_between_two_starts_it_was_well_for_the_whole_time(values: list[int]) -> None:
    """However the value jumps: an alert that ended had been at or below four fifths, look after look, for a minute."""
    active: list[Alert] = []
    quiet_looks = 0
    for look, value in enumerate(values):
        now = look * 30_000_000
        found = decide(active, [reading(value)], [], now=now, clear_after_us=CLEAR)
        quiet_looks = quiet_looks + 1 if value <= 80 else 0
        assert len(found.started) + len(found.kept) + len(found.calmed) + len(found.ended) <= 1
        if found.started:
            assert value > 100
            active = [alert(started_at=now)]
        elif found.kept:
            active = [alert(started_at=active[0].started_at)]
        elif found.calmed:
            active = [alert(started_at=active[0].started_at, ok_since=now)]
        elif found.ended:
            assert quiet_looks >= 3
            active = []
