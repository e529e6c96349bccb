"""Alerts as an application and its operators see them: `jobs.alerts`, and `@jobs.on_alert`. Mixed into `Duly`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from duly.alerts.settings import AlertSettings, changed
from duly.domain.alerts import RULES, Alert, Silence
from duly.domain.audit import current_actor
from duly.domain.clock import from_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import AlertNotFound, InvalidOption
from duly.domain.ids import is_job_id
from duly.domain.names import check_text, suggest
from duly.domain.text import clean_text
from duly.store import ops_alerts
from duly.store.ops_alerts import Told

if TYPE_CHECKING:
    from duly.alerts.deliver import AlertEvent
    from duly.alerts.evaluate import Evaluator
    from duly.app import Duly

R = TypeVar("R")
MOST_LISTED = 1_000
MOST_REASON = 1_000
MOST_SUBJECT = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """An alert: active while `ended_at` is None."""

    id: str
    rule: str
    subject: str
    queue: str | None
    task: str | None
    value: float
    threshold: float
    message: str
    details: dict[str, Any]
    started_at: datetime
    ended_at: datetime | None
    silenced_until: datetime | None
    acked_at: datetime | None
    acked_by: str | None

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return self.ended_at is None

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: each.isoformat() if isinstance(each, datetime) else each for name, each in values.items()}


class Alerts:
    """The alerts of one `Duly`. Called, it lists those that are active."""

    def __init__(self, app: Duly) -> None:
        self._app = app
        self.settings: AlertSettings = app.settings.alerts
        """When alerts start and where they go; changed by `configure`."""

    def __call__(self, *, all: bool = False, limit: int = 100) -> list[AlertRecord]:
        """The alerts that are active, oldest first; with `all`, then those that ended, the last to end first."""
        if not 0 < limit <= MOST_LISTED:
            raise InvalidOption(f"limit must be 1 to {MOST_LISTED}, not {limit}")
        database = self._app.store.database
        found = database.read(ops_alerts.active)
        if all:
            found += database.read(lambda: ops_alerts.ended(limit))
        silences = database.read(ops_alerts.silences)
        return [_record(alert, silences) for alert in found]

    def configure(self, **settings: Any) -> None:
        """Set thresholds and where alerts go, as the table `[alerts]` does; what is not named stays as it is.

        jobs.alerts.configure(depth=5_000, queues={"mail": {"oldest_waiting": "1m"}}, webhook="https://...")
        """
        self.settings = changed(self.settings, settings)

    def evaluator(self) -> Evaluator:
        """What looks for alerts and delivers them; its `step()` is to be called now and then. Workers do."""
        from duly.alerts.evaluate import Evaluator

        return Evaluator(self._app.store, lambda: self.settings, self._app.registry.on_alert)

    def check(self) -> list[AlertRecord]:
        """Look now, whoever looked last, tell whoever is to be told, and return what is active."""
        evaluator = self.evaluator()
        evaluator.evaluate(now_please=True)
        evaluator.deliver()
        return self()

    def get(self, alert_id: str) -> AlertRecord:
        """One alert, active or ended."""
        database = self._app.store.database
        return _record(self._found(alert_id), database.read(ops_alerts.silences))

    def _found(self, alert_id: str) -> Alert:
        found = self._app.store.database.read(lambda: ops_alerts.get(_checked(alert_id)))
        if found is None:
            raise AlertNotFound(
                f"there is no alert {alert_id}: it was forgotten, or the id is wrong. See: duly alerts --all"
            )
        return found

    def told(self, alert_id: str) -> list[Told]:
        """Who was told of an alert, by which channel, and what came of it."""
        return self._app.store.database.read(lambda: ops_alerts.notices_of(_checked(alert_id)))

    def silence(
        self,
        rule: str | None = None,
        subject: str | None = None,
        *,
        duration: timedelta | float | str = "1h",
        reason: str = "",
    ) -> datetime:
        """Tell nobody of alerts of a rule, about a subject, or both, for a while. Returns until when.

        They are still shown. If one is active when the silence ends, people are told then.
        """
        if rule is None and subject is None:
            raise InvalidOption('name a rule, a subject ("queue mail"), or both')
        for_us = micros(to_timedelta(duration, "duration"))
        if for_us <= 0:
            raise InvalidOption("duration must be longer than nothing")
        rule, subject = _rule(rule), None if subject is None else check_text(subject, "subject", MOST_SUBJECT)
        text, actor = clean_text(reason, MOST_REASON) or None, current_actor()
        until = self._app.store.run(lambda: ops_alerts.silence(rule, subject, for_us, reason=text, actor=actor))
        return from_us(until)

    def unsilence(self, rule: str | None = None, subject: str | None = None) -> int:
        """End silences of a rule or about a subject, or all. Returns how many there were."""
        rule, actor = _rule(rule), current_actor()
        return self._app.store.run(lambda: ops_alerts.unsilence(rule, subject, actor=actor))

    def silences(self) -> list[Silence]:
        """What is silenced now."""
        return self._app.store.database.read(ops_alerts.silences)

    def acknowledge(self, alert_id: str) -> bool:
        """Say that somebody looks after an alert. Returns whether that is news."""
        self._found(alert_id)
        actor = current_actor()
        return self._app.store.run(lambda: ops_alerts.acknowledge(alert_id, actor=actor))


class Alerting:
    """Shows alerts, and tells functions of them."""

    _alerts: Alerts | None = None

    @property
    def alerts(self) -> Alerts:
        """The alerts: `jobs.alerts()` lists the active ones."""
        if self._alerts is None:
            self._alerts = Alerts(cast("Duly", self))
        return self._alerts

    def on_alert(self, function: Callable[[AlertEvent], R]) -> Callable[[AlertEvent], R]:
        """Call a function when an alert starts and when it ends, in one of the processes that declare it.

        Once each; twice only if the process dies in the middle of it: `event.notice_id` is then the same.
        """
        cast("Duly", self).registry.on_alert.append(function)
        return function


def _record(alert: Alert, silences: list[Silence]) -> AlertRecord:
    until = [each.until_at for each in silences if each.covers(*alert.key)] if alert.ended_at is None else []
    return AlertRecord(
        id=alert.id,
        rule=alert.rule,
        subject=alert.subject,
        queue=alert.queue,
        task=alert.task,
        value=alert.value,
        threshold=alert.threshold,
        message=alert.message,
        details=dict(alert.details),
        started_at=from_us(alert.started_at),
        ended_at=None if alert.ended_at is None else from_us(alert.ended_at),
        silenced_until=from_us(max(until)) if until else None,
        acked_at=None if alert.acked_at is None else from_us(alert.acked_at),
        acked_by=alert.acked_by,
    )


def _rule(rule: str | None) -> str | None:
    if rule is not None and rule not in RULES:
        raise InvalidOption(f"there is no rule {rule!r}.{suggest(rule, RULES)} Known: {', '.join(RULES)}")
    return rule


def _checked(alert_id: str) -> str:
    if not is_job_id(alert_id):
        raise AlertNotFound(f"{alert_id!r} is not the id of an alert. See: duly alerts --all")
    return alert_id
