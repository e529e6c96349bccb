"""Keeps alerts: whose turn it is to look, which are active, who is to be told, what is silenced.

Not here: when an alert starts or ends (`duly.domain.alerts`), and how anybody is told (`duly.alerts`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import NamedTuple

from duly.domain.alerts import Alert, Decisions, Reading, Silence
from duly.domain.audit import Actor
from duly.domain.ids import uuid7
from duly.store import ops_audit
from duly.store.call import Call, Op, Row, Value

CHANNELS = ("log", "webhook", "callback")
MOST_ERROR = 500


class Notice(NamedTuple):
    """Somebody to be told that an alert started or ended."""

    id: str
    alert_id: str
    event: str
    body: Mapping[str, object]
    tries: int
    """How often it was tried before."""
    age_us: int


class Told(NamedTuple):
    """What became of a notice."""

    id: str
    event: str
    channel: str
    made_at: int
    tries: int
    done_at: int | None
    error: str | None


class Due(NamedTuple):
    """How many microseconds until there is something to do, at most 0 if now."""

    look_us: int
    tell_us: int | None
    """None: nobody is to be told."""


def due(channels: Collection[str]) -> Op[Due]:
    """When somebody should look, and when somebody is to be told by these channels."""
    params: dict[str, Value] = {name: name in channels for name in CHANNELS[1:]}
    [(look, tell)] = yield Call("alerts_due", params)
    return Due(0 if look is None else int(str(look)), None if tell is None else int(str(tell)))


def anything_to_see(*, window_us: int, poison_us: int) -> Op[tuple[int, bool]]:
    """What time it is, and whether there is anything that alerts could be about, but for the size of files."""
    [(now, found)] = yield Call("anything_to_see", {"window_us": window_us, "poison_us": poison_us})
    return int(str(now)), bool(found)


def take_turn(holder: str, interval_us: int, *, now_please: bool = False) -> Op[int | None]:
    """Take the turn to look, if it is free; then nobody else does for a while. Returns its number."""
    rows = yield Call("take_turn", {"holder": holder, "interval_us": interval_us, "now_please": now_please})
    return int(str(rows[0][0])) if rows else None


def rest(turn: int, rest_us: int) -> Op[None]:
    """Have nobody look for a while."""
    yield Call("rest_after", {"turn": turn, "rest_us": rest_us})


def active() -> Op[list[Alert]]:
    """The alerts that have not ended, oldest first."""
    return [_alert(row) for row in (yield Call("active_alerts"))]


def ended(n: int) -> Op[list[Alert]]:
    """The alerts that ended last, newest first."""
    return [_alert(row) for row in (yield Call("ended_alerts", {"n": n}))]


def get(alert_id: str) -> Op[Alert | None]:
    """One alert."""
    rows = yield Call("get_alert", {"id": alert_id})
    return _alert(rows[0]) if rows else None


def count_active() -> Op[dict[str, int]]:
    """How many alerts are active, by rule."""
    return {str(row[0]): int(str(row[1])) for row in (yield Call("count_active_alerts"))}


def write_down(turn: int, decisions: Decisions) -> Op[bool]:
    """Write down what a look came to, with the notices that follow from it; nothing if the turn is no longer ours."""
    held = yield Call("hold_turn", {"turn": turn})
    if not held:
        return False
    now = int(str(held[0][0]))
    for reading, loud in decisions.started:
        alert_id = uuid7()
        params = {**_params(reading), "rule": reading.rule, "subject": reading.subject}
        params |= {"queue": reading.queue, "task": reading.task, "id": alert_id, "told": loud}
        if (yield Call("start_alert", params)) and loud:
            yield from _add_notices("started", _started(alert_id, reading, now))
    for alert, reading, loud in decisions.kept:
        yield Call("keep_alert", {**_params(reading), "id": alert.id, "told": alert.told or loud})
        if loud:
            yield from _add_notices("started", _started(alert.id, reading, alert.started_at))
    for alert in decisions.calmed:
        yield Call("calm_alert", {"id": alert.id})
    for alert in decisions.ended:
        rows = yield Call("end_alert", {"id": alert.id})
        if rows and alert.told:
            yield from _add_notices("ended", _body(alert) | {"ended_at": int(str(rows[0][0]))})
    return True


def _params(reading: Reading) -> dict[str, Value]:
    return {
        "value": float(reading.value),
        "threshold": float(reading.threshold),
        "message": reading.message,
        "details": json.dumps(reading.details, ensure_ascii=False),
    }


def _started(alert_id: str, reading: Reading, started_at: int) -> dict[str, object]:
    return {
        "id": alert_id,
        "rule": reading.rule,
        "subject": reading.subject,
        "queue": reading.queue,
        "task": reading.task,
        "value": reading.value,
        "threshold": reading.threshold,
        "message": reading.message,
        "details": dict(reading.details),
        "started_at": started_at,
        "ended_at": None,
    }


def _body(alert: Alert) -> dict[str, object]:
    names = ("id", "rule", "subject", "queue", "task", "value", "threshold", "message", "details", "started_at")
    return {name: getattr(alert, name) for name in names}


def _add_notices(event: str, body: Mapping[str, object]) -> Op[None]:
    text = json.dumps(body, ensure_ascii=False)
    for channel in CHANNELS:
        params: dict[str, Value] = {"id": uuid7(), "alert_id": str(body["id"]), "event": event, "channel": channel}
        yield Call("add_notice", {**params, "body": text})


# -- who is told ------------------------------------------------------------------------------------------------------


def take_notice(channel: str, lease_us: int) -> Op[Notice | None]:
    """Take the next notice of a channel for a while; the end of an alert never before its start."""
    rows = yield Call("next_notice", {"channel": channel})
    if not rows:
        return None
    row = rows[0]
    yield Call("lease_notice", {"id": str(row[0]), "lease_us": lease_us})
    return Notice(str(row[0]), str(row[1]), str(row[2]), json.loads(str(row[3])), int(str(row[4])), int(str(row[5])))


def notice_done(notice_id: str, error: str | None = None) -> Op[None]:
    """Write down that somebody was told; with an error, that they will not be."""
    yield Call("notice_done", {"id": notice_id, "error": _short(error)})


def notice_again(notice_id: str, delay_us: int, error: str) -> Op[None]:
    """Write down that it did not work, and when to try again."""
    yield Call("notice_again", {"id": notice_id, "delay_us": delay_us, "error": _short(error)})


def notices_of(alert_id: str) -> Op[list[Told]]:
    """Who was told of an alert."""
    return [Told._make(row) for row in (yield Call("notices_of", {"id": alert_id}))]


def forget(*, unserved_us: int, keep_us: int) -> Op[None]:
    """Drop notices that nobody serves; forget alerts and silences that ended long ago."""
    yield Call("drop_notices", {"keep_us": unserved_us})
    for name in ("prune_notices", "prune_alerts", "prune_silences"):
        yield Call(name, {"keep_us": keep_us})


# -- what people do ---------------------------------------------------------------------------------------------------


def silences() -> Op[list[Silence]]:
    """What is silenced now."""
    return [Silence._make(row) for row in (yield Call("silences"))]


def silence(rule: str | None, subject: str | None, for_us: int, *, reason: str | None, actor: Actor) -> Op[int]:
    """Tell nobody of some alerts for a while. Returns until when."""
    params: dict[str, Value] = {"id": uuid7(), "rule": rule, "subject": subject, "for_us": for_us}
    rows = yield Call("add_silence", {**params, "made_by": actor.who, "reason": reason})
    until = int(str(rows[0][0]))
    about = silenced(rule, subject)
    yield from ops_audit.keep(actor, "silence", subject=about, reason=reason, after={"until_at": until})
    return until


def unsilence(rule: str | None, subject: str | None, *, actor: Actor) -> Op[int]:
    """End silences. Returns how many there were."""
    rows = yield Call("end_silences", {"rule": rule, "subject": subject})
    if rows:
        yield from ops_audit.keep(actor, "unsilence", subject=silenced(rule, subject), before={"silences": len(rows)})
    return len(rows)


def acknowledge(alert_id: str, *, actor: Actor) -> Op[bool]:
    """Write down that somebody looks after an alert. Returns whether that is news."""
    rows = yield Call("ack_alert", {"id": alert_id, "by": actor.who})
    if rows:
        yield from ops_audit.keep(actor, "acknowledge", subject=f"{rows[0][0]} {rows[0][1]}", after={"alert": alert_id})
    return bool(rows)


def silenced(rule: str | None, subject: str | None) -> str:
    """What a silence is about, in words."""
    return " ".join(each for each in (rule, subject) if each is not None) or "every alert"


def _short(error: str | None) -> str | None:
    return None if error is None else error[:MOST_ERROR]


def _alert(row: Row) -> Alert:
    names = (
        "id", "rule", "subject", "queue", "task", "value", "threshold", "message", "details", "started_at", "seen_at",
        "ok_since", "ended_at", "told", "acked_at", "acked_by",
    )  # fmt: skip
    values = dict(zip(names, row, strict=True))
    values["details"], values["told"] = json.loads(str(row[8])), bool(row[13])
    return Alert(**values)  # type: ignore[arg-type]
