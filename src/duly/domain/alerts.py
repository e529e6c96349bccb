"""What an alert is, when it starts and when it ends: decided from readings and what is active. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

RULES: Final = {
    "depth": "more jobs wait than the threshold",
    "failed_rate": "too many runs fail",
    "running": "a job runs for too long",
    "schedule_late": "a recurring job missed its window",
    "no_worker": "jobs wait and no live worker can run them",
    "oldest_waiting": "a job has been waiting for too long",
    "poison": "jobs take their workers with them",
    "disk_free": "little space is left on the disk",
    "wal_size": "the write-ahead log grows",
    "database_size": "the database is large",
}
LOWER_IS_WORSE: Final = frozenset({"disk_free"})
CLEAR_AT: Final = 0.8
"""An alert may end when the value is no more than this part of the threshold."""


class Reading(NamedTuple):
    """How something that a rule is about stands."""

    rule: str
    subject: str
    value: float
    threshold: float
    message: str
    queue: str | None = None
    task: str | None = None
    details: Mapping[str, object] = {}

    @property
    def holds(self) -> bool:
        """Whether this is reason to start an alert."""
        return self.value < self.threshold if self.rule in LOWER_IS_WORSE else self.value > self.threshold

    @property
    def lingers(self) -> bool:
        """Whether this is reason not to end one: the value is still near the threshold."""
        if self.rule in LOWER_IS_WORSE:
            return self.value < self.threshold / CLEAR_AT
        return self.holds or self.value > self.threshold * CLEAR_AT


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that an operator should know of, while it lasts and after."""

    id: str
    rule: str
    subject: str
    queue: str | None
    task: str | None
    value: float
    threshold: float
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    started_at: int
    seen_at: int
    ok_since: int | None = None
    ended_at: int | None = None
    told: bool = False
    acked_at: int | None = None
    acked_by: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What there is at most one active alert of."""
        return self.rule, self.subject


class Silence(NamedTuple):
    """Nobody is told of alerts of a rule, about a subject, or both, until some time."""

    id: str
    rule: str | None
    subject: str | None
    made_at: int
    until_at: int
    made_by: str | None
    reason: str | None

    def covers(self, rule: str, subject: str) -> bool:
        """Whether it is about such an alert."""
        return self.rule in (None, rule) and self.subject in (None, subject)


class Decisions(NamedTuple):
    """What becomes of alerts after a look."""

    started: list[tuple[Reading, bool]]
    """Each with whether anybody is to be told."""
    kept: list[tuple[Alert, Reading, bool]]
    """Each with whether anybody is to be told now, because nobody could be before."""
    calmed: list[Alert]
    ended: list[Alert]


def decide(
    active: Sequence[Alert], readings: Iterable[Reading], silences: Sequence[Silence], *, now: int, clear_after_us: int
) -> Decisions:
    """Say which alerts start, go on, calm down and end."""
    result = Decisions([], [], [], [])
    by_key = {alert.key: alert for alert in active}
    lasting: set[tuple[str, str]] = set()
    for reading in readings:
        key = (reading.rule, reading.subject)
        alert, loud = by_key.get(key), not any(silence.covers(*key) for silence in silences)
        if alert is None:
            if reading.holds:
                result.started.append((reading, loud))
        elif reading.lingers:
            lasting.add(key)
            result.kept.append((alert, reading, loud and not alert.told))
    for alert in active:
        if alert.key in lasting:
            continue
        calm_for = 0 if alert.ok_since is None else now - alert.ok_since
        if calm_for >= clear_after_us:
            result.ended.append(alert)
        elif alert.ok_since is None:
            result.calmed.append(alert)
    return result
