"""What operators do about alerts: look, silence, acknowledge; all of it kept in the audit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly import AlertNotFound, Duly, InvalidOption
from duly.testing import TestClock
from tests.alerts.watching import OFF, Told, active
from tests.helpers import opened


def alarmed(jobs: Duly) -> list[str]:
    jobs.alerts.configure(**OFF)
    jobs.alerts.configure(depth=0, clear_after=0)

    @jobs.task(queue="mail")
    def send() -> None: ...

    return [send.enqueue().id]


@pytest.mark.requirement("C13")
@pytest.mark.everywhere
def test_what_is_silenced_is_shown_and_not_told_and_told_when_the_silence_is_over(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock) as jobs:
        told = Told(jobs)
        with jobs.acting_as("alice"):
            until = jobs.alerts.silence("depth", duration="1h", reason="we know")
        assert until == clock.now() + timedelta(hours=1)
        ids = alarmed(jobs)
        [shown] = jobs.alerts.check()
        assert shown.silenced_until == until
        assert told.words == []
        clock.advance(timedelta(hours=1, seconds=1))
        [shown] = jobs.alerts.check()
        assert shown.silenced_until is None
        assert told.words == ["started depth queue mail"]
        jobs.cancel_many(ids)
        jobs.alerts.check()
        assert told.words == ["started depth queue mail", "ended depth queue mail"]
        [record] = jobs.audit(action="silence")
        assert (record.who, record.subject, record.reason) == ("alice", "depth", "we know")


def test_one_that_starts_and_ends_in_silence_is_never_told(jobs: Duly) -> None:
    told = Told(jobs)
    jobs.alerts.silence(subject="queue mail")
    ids = alarmed(jobs)
    jobs.alerts.check()
    jobs.cancel_many(ids)
    assert jobs.alerts.check() == []
    assert told.words == []
    assert len(jobs.alerts(all=True)) == 1


def test_an_alert_that_was_told_is_told_to_end_also_in_silence(jobs: Duly) -> None:
    told = Told(jobs)
    ids = alarmed(jobs)
    jobs.alerts.check()
    jobs.alerts.silence("depth")
    jobs.cancel_many(ids)
    jobs.alerts.check()
    assert told.words == ["started depth queue mail", "ended depth queue mail"]


def test_silences_can_be_ended(jobs: Duly) -> None:
    jobs.alerts.silence("depth")
    jobs.alerts.silence("running", "task send")
    assert len(jobs.alerts.silences()) == 2
    assert jobs.alerts.unsilence("depth") == 1
    assert [each.rule for each in jobs.alerts.silences()] == ["running"]
    assert jobs.alerts.unsilence() == 1
    assert jobs.alerts.unsilence() == 0
    assert [each.subject for each in jobs.audit(action="unsilence")] == ["every alert", "depth"]


def test_what_cannot_be_silenced_is_refused(lite: Duly) -> None:
    with pytest.raises(InvalidOption, match="name a rule"):
        lite.alerts.silence()
    with pytest.raises(InvalidOption, match="Did you mean 'depth'"):
        lite.alerts.silence("dept")
    with pytest.raises(InvalidOption, match="longer than nothing"):
        lite.alerts.silence("depth", duration=0)


def test_an_alert_is_acknowledged_once(jobs: Duly) -> None:
    ids = alarmed(jobs)
    [alert] = jobs.alerts.check()
    with jobs.acting_as("bob"):
        assert jobs.alerts.acknowledge(alert.id)
        assert not jobs.alerts.acknowledge(alert.id)
    [shown] = jobs.alerts()
    assert shown.acked_by == "bob"
    assert shown.acked_at is not None
    [record] = jobs.audit(action="acknowledge")
    assert (record.who, record.subject) == ("bob", "depth queue mail")
    jobs.cancel_many(ids)
    jobs.alerts.check()
    assert not jobs.alerts.acknowledge(alert.id)


@pytest.mark.parametrize("wrong", ["x", "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12"])
def test_an_alert_that_is_not_there_cannot_be_acknowledged(lite: Duly, wrong: str) -> None:
    with pytest.raises(AlertNotFound, match="duly alerts --all"):
        lite.alerts.acknowledge(wrong)


def test_the_history_has_the_last_to_end_first_and_what_is_active_before(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock) as jobs:
        for _ in range(3):
            ids = alarmed(jobs)
            jobs.alerts.check()
            clock.advance(60)
            jobs.cancel_many(ids)
            jobs.alerts.check()
        alarmed(jobs)
        jobs.alerts.check()
        found = jobs.alerts(all=True, limit=2)
        assert [each.active for each in found] == [True, False, False]
        assert found[1].started_at > found[2].started_at
        assert active(jobs) == ["depth queue mail"]
        assert found[1].to_dict()["ended_at"] == (found[1].ended_at or clock.now()).isoformat()
