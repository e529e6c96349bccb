"""Tells people of alerts: takes notices from the outbox, tells, and writes down that it did.

Each notice is told once; again only if a process dies between telling and writing down, or if a webhook's answer is
lost. Its id stays the same, so whoever is told can drop repeats.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from duly.alerts.settings import AlertSettings
from duly.domain.clock import from_us
from duly.store import ops_alerts
from duly.store.ops_alerts import Notice
from duly.store.store import Store
from duly.worker.hooks import RunCoroutine, run_hook_whatever

log = logging.getLogger("duly.alerts")

Callback = Callable[["AlertEvent"], object]
LEASE_US = 60_000_000
"""How long a process may take over one notice before another takes it."""
TRIES = 12
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 600.0
AT_ONCE = 100


class AlertEvent:
    """An alert that has just started or ended, as `@jobs.on_alert` functions get it."""

    __slots__ = ("details", "ended_at", "event", "id", "message", "notice_id", "queue", "rule", "started_at", "subject",
                 "task", "threshold", "value")  # fmt: skip

    def __init__(self, event: str, notice_id: str, body: Mapping[str, object]) -> None:
        self.event = event
        """started or ended."""
        self.notice_id = notice_id
        """The same if it is told again: drop what you have seen."""
        self.id = str(body["id"])
        self.rule = str(body["rule"])
        self.subject = str(body["subject"])
        self.queue: str | None = body["queue"]  # type: ignore[assignment]
        self.task: str | None = body["task"]  # type: ignore[assignment]
        self.value = float(body["value"])  # type: ignore[arg-type]
        self.threshold = float(body["threshold"])  # type: ignore[arg-type]
        self.message = str(body["message"])
        self.details: dict[str, object] = body["details"]  # type: ignore[assignment]
        self.started_at = from_us(int(body["started_at"]))  # type: ignore[call-overload]
        ended = body.get("ended_at")
        self.ended_at: datetime | None = None if ended is None else from_us(int(ended))  # type: ignore[call-overload]

    def __repr__(self) -> str:
        return f"<AlertEvent {self.event} {self.rule} {self.subject}: {self.message}>"

    def to_dict(self) -> dict[str, object]:
        """As plain values, for JSON; what a webhook is sent."""
        alert = {name: getattr(self, name) for name in self.__slots__ if name not in ("event", "notice_id")}
        alert["started_at"] = self.started_at.isoformat()
        alert["ended_at"] = None if self.ended_at is None else self.ended_at.isoformat()
        return {"id": self.notice_id, "event": self.event, "alert": dict(sorted(alert.items()))}


class Deliverer:
    """Delivers what waits in the outbox, by the channels that this process can serve."""

    def __init__(
        self,
        store: Store,
        settings: AlertSettings,
        callbacks: Sequence[Callback],
        *,
        on: Callable[[], RunCoroutine | None] = lambda: None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._callbacks = callbacks
        self._on = on

    @property
    def served(self) -> dict[str, Callable[[Notice], None]]:
        """The channels by which this process can tell somebody, and how."""
        served: dict[str, Callable[[Notice], None]] = {"log": self._log}
        if self._callbacks:
            served["callback"] = self._call
        if self._settings.webhook:
            served["webhook"] = self._post
        return served

    def step(self, *, stopping: Callable[[], bool] = lambda: False) -> int:
        """Deliver what is due. Returns how many were told."""
        told = 0
        for channel, tell in self.served.items():
            for _ in range(AT_ONCE):
                notice = None if stopping() else self._take(channel)
                if notice is None:
                    break
                tell(notice)
                told += 1
        return told

    def _take(self, channel: str) -> Notice | None:
        return self._store.run(lambda: ops_alerts.take_notice(channel, LEASE_US))

    def _done(self, notice: Notice, error: str | None = None) -> None:
        self._store.run(lambda: ops_alerts.notice_done(notice.id, error))

    def _log(self, notice: Notice) -> None:
        event = AlertEvent(notice.event, notice.id, notice.body)
        level = logging.WARNING if event.event == "started" else logging.INFO
        word = "alert" if event.event == "started" else "alert is over"
        log.log(level, "%s: %s (%s)", word, event.message, event.rule, extra={"duly_alert": event.to_dict()})
        self._done(notice)

    def _call(self, notice: Notice) -> None:
        event = AlertEvent(notice.event, notice.id, notice.body)
        for callback in list(self._callbacks):
            run_hook_whatever(callback, event, on=self._on())
        self._done(notice)

    def _post(self, notice: Notice) -> None:
        from duly.alerts.webhook import WebhookFailed, send  # here: few have one, and it brings TLS along

        settings, event = self._settings, AlertEvent(notice.event, notice.id, notice.body)
        body = json.dumps(event.to_dict(), ensure_ascii=False).encode()
        timeout = settings.webhook_timeout.total_seconds()
        try:
            send(settings.webhook or "", body, notice_id=notice.id, secret=settings.webhook_secret, timeout=timeout)
        except WebhookFailed as error:
            self._try_again(notice, str(error))
        else:
            self._done(notice)

    def _try_again(self, notice: Notice, error: str) -> None:
        if notice.tries + 1 >= TRIES:
            log.error("the webhook was not told of alert %s (%s): %s; given up", notice.alert_id, notice.event, error)
            self._done(notice, f"given up after {TRIES} tries: {error}")
            return
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**notice.tries) * (0.5 + random.random() / 2)
        log.warning("the webhook was not told of an alert: %s; trying again in %.0f s", error, pause)
        self._store.run(lambda: ops_alerts.notice_again(notice.id, int(pause * 1e6), error))
