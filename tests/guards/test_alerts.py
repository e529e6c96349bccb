"""One looks for alerts at a time, an alert starts and ends once, and everybody is told once."""

from __future__ import annotations

from typing import Any

import pytest

from duly.domain.alerts import Alert, Decisions, Reading
from duly.domain.audit import Actor
from duly.store import ops_alerts
from duly.store.call import Call, Op, Rows
from tests.guards.racing import Beside, Pair, held, interrupted
from tests.store.factory import Factory

READING = Reading("backlog", "default", 9.0, 5.0, "too much waits")
SECOND = 1_000_000


def ask(name: str, **params: Any) -> Op[Rows]:
    return (yield Call(name, params))


def decided(**some: Any) -> Decisions:
    return Decisions(**({"started": [], "kept": [], "calmed": [], "ended": []} | some))


def take_turn(make: Factory, *, holder: str = "me", now_please: bool = True) -> int | None:
    return make.store.run(lambda: ops_alerts.take_turn(holder, 10 * SECOND, now_please=now_please))


def write_down(make: Factory, turn: int | None, **some: Any) -> bool:
    assert turn is not None
    return make.store.run(lambda: ops_alerts.write_down(turn, decided(**some)))


def active(make: Factory) -> list[Alert]:
    return make.store.run(ops_alerts.active)


def started(make: Factory) -> Alert:
    assert write_down(make, take_turn(make), started=[(READING, True)])
    (alert,) = active(make)
    return alert


def ended(make: Factory) -> Alert:
    alert = started(make)
    make.clock.advance(1)
    assert write_down(make, take_turn(make), ended=[alert])
    return alert


def row_of(make: Factory, alert: Alert) -> tuple[Any, ...]:
    (row,) = make.raw.rows(
        f"SELECT value, ok_since, ended_at, acked_at, seen_at FROM duly.alerts WHERE id = '{alert.id}'"
    )
    return row


def test_nobody_looks_while_it_is_anothers_turn(make: Factory) -> None:
    assert take_turn(make, now_please=False) is not None
    assert take_turn(make, holder="other", now_please=False) is None
    make.clock.advance(11)
    assert take_turn(make, holder="other", now_please=False) is not None


def test_who_no_longer_has_the_turn_writes_nothing_and_keeps_nobody_from_looking(make: Factory) -> None:
    late = take_turn(make)
    assert late is not None
    take_turn(make, holder="other")
    assert not write_down(make, late, started=[(READING, True)])
    make.store.run(lambda: ops_alerts.rest(late, 3_600 * SECOND))
    make.clock.advance(11)
    assert active(make) == []
    assert take_turn(make, now_please=False) is not None


def test_an_alert_that_is_active_is_not_started_again_and_the_rest_of_a_look_stands(make: Factory) -> None:
    alert = started(make)
    other = READING._replace(subject="other")
    assert write_down(make, take_turn(make), started=[(READING, True), (other, True)])
    assert [each.subject for each in active(make)] == ["default", "other"]
    assert active(make)[0].id == alert.id
    assert make.raw.count("alert_notices") == 6


@pytest.mark.parametrize("how", ["kept", "calmed", "ended"])
def test_an_alert_that_has_ended_stays_as_it_is(make: Factory, how: str) -> None:
    alert = ended(make)
    before = row_of(make, alert)
    make.clock.advance(5)
    changes: dict[str, Any] = {"kept": [(alert, READING._replace(value=50.0), False)]}
    assert write_down(make, take_turn(make), **{how: changes.get(how, [alert])})
    if how == "calmed":
        make.raw.rows("UPDATE duly.alerts SET ok_since = NULL")
        before = row_of(make, alert)
        write_down(make, take_turn(make), calmed=[alert])
    assert row_of(make, alert) == before


def test_nobody_looks_after_an_alert_that_has_ended(make: Factory) -> None:
    alert = ended(make)
    assert not make.store.run(lambda: ops_alerts.acknowledge(alert.id, actor=Actor("me", "cli")))


def test_everybody_is_told_once(make: Factory) -> None:
    alert = started(make)
    assert write_down(make, take_turn(make), kept=[(alert, READING, True)])
    assert make.raw.count("alert_notices") == 3


def take(make: Factory) -> ops_alerts.Notice | None:
    return make.store.run(lambda: ops_alerts.take_notice("log", 30 * SECOND))


def test_a_notice_is_told_by_one_at_a_time_and_once(make: Factory) -> None:
    started(make)
    notice = take(make)
    assert notice is not None
    assert take(make) is None, "another tells it"
    make.store.run(lambda: ops_alerts.notice_done(notice.id))
    make.clock.advance(3_600)
    assert take(make) is None, "it is done"


def test_nobody_is_told_of_an_end_before_the_start(make: Factory) -> None:
    ended(make)
    started_first = take(make)
    assert started_first is not None
    assert started_first.event == "started"
    assert take(make) is None, "while the start is told, the end waits"
    make.store.run(lambda: ops_alerts.notice_done(started_first.id))
    then = take(make)
    assert then is not None
    assert then.event == "ended"


def test_a_late_word_changes_nothing_of_a_notice_that_is_done(make: Factory) -> None:
    started(make)
    notice = take(make)
    assert notice is not None
    make.store.run(lambda: ops_alerts.notice_done(notice.id))
    before = make.raw.rows(f"SELECT * FROM duly.alert_notices WHERE id = '{notice.id}'")
    make.clock.advance(60)
    make.store.run(lambda: ops_alerts.notice_done(notice.id, "late"))
    make.store.run(lambda: ops_alerts.notice_again(notice.id, 1, "late"))
    assert make.raw.rows(f"SELECT * FROM duly.alert_notices WHERE id = '{notice.id}'") == before


def test_what_was_given_up_is_not_given_up_again(make: Factory) -> None:
    started(make)
    for _ in range(2):
        make.clock.advance(60)
        make.store.run(lambda: ask("drop_notices", keep_us=1))
    first = make.clock.now_us() - 60 * SECOND
    assert make.raw.rows("SELECT DISTINCT done_at FROM duly.alert_notices") == [(first,)]


def test_two_who_tell_take_two_notices(pair: Pair) -> None:
    started(pair.one)
    assert write_down(pair.one, take_turn(pair.one), started=[(READING._replace(subject="other"), True)])
    found: list[Any] = []
    op = interrupted(ops_alerts.take_notice("log", SECOND), "next_notice", lambda: found.append(take(pair.other)))
    mine = pair.one.store.run(lambda: op)
    assert found[0] is not None
    assert found[0].id != mine.id


def test_telling_goes_round_a_notice_that_another_takes(pair: Pair) -> None:
    started(pair.one)
    telling = Beside(pair.raw, lambda: take(pair.other))
    with held(pair.raw, "SELECT id FROM duly.alert_notices WHERE channel = 'log' FOR UPDATE"):
        telling.must_not_wait()
        assert telling.answer() is None
