"""Schedules in plain English."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from duly.schedule import Schedule


@pytest.mark.parametrize(
    "rules, options, text",
    [
        ("@every 1h30m", {}, "every 1h30m"),
        (timedelta(milliseconds=1500), {}, "every 1s500ms"),
        ("@every 1h", {"timezone": "Europe/Berlin"}, "every 1h"),
        ("@yearly", {}, "at 00:00 on January 1, UTC"),
        ("@monthly", {}, "at 00:00 on the first day of every month, UTC"),
        ("@weekly", {}, "at 00:00 on Sunday, UTC"),
        ("@daily", {}, "at 00:00 every day, UTC"),
        ("@hourly", {}, "at the start of every hour, UTC"),
        ("*/15 * * * *", {}, "every 15th minute of every hour, UTC"),
        ("*/10 * * * * *", {}, "every 10th second of every minute, UTC"),
        (
            "0 9 * * mon-fri",
            {"timezone": "Europe/Berlin"},
            "at 09:00 on Monday through Friday, Europe/Berlin",
        ),
        ("0 9 * * fri-sun", {}, "at 09:00 on Friday through Sunday, UTC"),
        ("0 9 * * friL", {}, "at 09:00 on the last Friday of the month, UTC"),
        ("0 9 * * sun#1", {}, "at 09:00 on the first Sunday of the month, UTC"),
        ("0 0 29 2 *", {}, "at 00:00 on February 29, UTC"),
        ("0 0 LW * *", {}, "at 00:00 on the last weekday of every month, UTC"),
        (
            ["0 9 * * mon-fri", "0 12 * * sat"],
            {"timezone": "America/New_York"},
            "at 09:00 on Monday through Friday and at 12:00 on Saturday, America/New_York",
        ),
        (["@every 1h", "@every 90m", "@daily"], {}, "every 1h, every 1h30m and at 00:00 every day, UTC"),
        (
            "@every 1h",
            {"start": datetime(2026, 1, 1, tzinfo=UTC), "until": datetime(2026, 6, 30, 12, 0, 30, tzinfo=UTC)},
            "every 1h; from 2026-01-01 00:00+00:00; until 2026-06-30 12:00:30+00:00",
        ),
        (
            "@daily",
            {"timezone": "Europe/Berlin", "until": datetime(2026, 6, 30, 22, tzinfo=UTC)},
            "at 00:00 every day, Europe/Berlin; until 2026-07-01 00:00+02:00",
        ),
        (
            "@every 1h",
            {"exclude": [date(2026, 12, 25), "2026-12-24"], "timezone": "Europe/Berlin"},
            "every 1h, Europe/Berlin; not on 2026-12-24 and 2026-12-25",
        ),
        (
            "@daily",
            {"exclude": [f"2026-12-{day}" for day in range(20, 31)]},
            "at 00:00 every day, UTC; not on 2026-12-20, 2026-12-21, 2026-12-22 and 8 more days",
        ),
        ("@hourly", {"jitter": "10m"}, "at the start of every hour, UTC; each key shifted by up to 10m"),
        (
            "@daily",
            {"gap": "skip", "overlap": "twice"},
            "at 00:00 every day, UTC; left out when clocks skip the time; twice when clocks repeat the time",
        ),
        (None, {}, "when the handler decides"),
    ],
)
def test_a_schedule_is_told_in_plain_english(rules: Any, options: dict[str, Any], text: str) -> None:
    assert Schedule.make(rules, **options).describe() == text
