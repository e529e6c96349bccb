"""What holds all that waits: grouped by reason, counted, with an example; by lanes, so bounded."""

from __future__ import annotations

from typing import Any

import pytest

from duly import Backoff, Duly, State
from duly.store import ops_why, ops_why_queue
from duly.why.answer import Group, Reason
from tests.helpers import eventually, opened
from tests.why.look import Gate, held

pytestmark = pytest.mark.requirement("C15")


def found(jobs: Duly, **only: Any) -> dict[tuple[str, str], Group]:
    """The groups by queue and reason; there is one of each here."""
    groups = jobs.why_waiting(**only)
    by = {(group.queue, str(group.reason)): group for group in groups}
    assert len(by) == len(groups)
    return by


def test_jobs_are_grouped_by_what_holds_them(jobs: Duly, gate: Gate) -> None:
    @jobs.task(queue="mail", concurrency=1)
    def send() -> None:
        gate.wait()

    @jobs.task(queue="slow")
    def slow() -> None: ...

    @jobs.task(retry=Backoff.fixed("1h", max_attempts=3))
    def broken() -> None:
        raise ValueError

    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None:
        gate.wait()

    with held(jobs, gate):
        running = send.enqueue()
        gate.has_started()
        waiting = [send.enqueue() for _ in range(4)]
        jobs.pause(queue="slow", by="ann", reason="the disk is full")
        paused = [slow.using(tenant=tenant).enqueue() for tenant in ("acme", "umbrella", "acme")]
        later = slow.using(delay=7200).enqueue()
        retried = broken.enqueue()
        fetch.enqueue("example.com")
        gate.has_started()
        parked = [fetch.enqueue("example.com") for _ in range(2)]
        nobody = jobs["slow"].using(queue="nobody").enqueue()
        eventually(lambda: jobs.counts().parked == {"key": 2} and retried.refresh().state is State.SCHEDULED)
        groups = found(jobs)
        full = groups["mail", "limit_full"]
        assert (full.jobs, full.at_least, full.tasks) == (4, False, ("send",))
        assert full.example == waiting[0].id
        assert [each.job_id for each in full.blocker.holders] == [running.id]
        assert full.next == "duly limits set --task send --concurrency 2"
        shut = groups["slow", "paused"]
        assert (shut.jobs, shut.tenants, shut.blocker.by) == (3, ("acme", "umbrella"), "ann")
        assert shut.example in {each.id for each in paused}
        assert (groups["slow", "not_due"].jobs, groups["slow", "not_due"].example) == (1, later.id)
        assert (groups["default", "retry"].jobs, groups["default", "retry"].example) == (1, retried.id)
        key = groups["default", "limit_full"]
        assert (key.jobs, key.blocker.scope, key.blocker.name) == (2, "key", "fetch/example.com")
        assert key.example in {each.id for each in parked}
        assert groups["nobody", "no_worker_for_queue"].example == nobody.id
        assert set(groups) == {
            ("mail", "limit_full"),
            ("slow", "paused"),
            ("slow", "not_due"),
            ("default", "retry"),
            ("default", "limit_full"),
            ("nobody", "no_worker_for_queue"),
        }
        assert set(found(jobs, queue="mail")) == {("mail", "limit_full")}
        for group in groups.values():
            assert group.text
            if group.example is not None and group.reason is not Reason.STARTING:
                assert jobs.why(group.example).reason is group.reason, "asked about one of them, the same is said"


def test_arguments_unique_keys_and_lapsed_leases_have_groups_of_their_own(database_url: str) -> None:
    with opened(database_url) as old:

        @old.task(name="send")
        def older(n: int, colour: str) -> None: ...

        older.enqueue_many([{"n": n, "colour": "red"} for n in range(3)])
    with opened(database_url) as jobs:

        @jobs.task
        def send(n: int) -> None: ...

        with jobs.worker():
            eventually(lambda: jobs.counts().parked == {"arguments": 3})
        group = found(jobs)["default", "arguments"]
        assert (group.jobs, group.blocker.name) == (3, "send")
        assert "colour" in group.text


def test_nothing_waits_and_nothing_is_said(jobs: Duly) -> None:
    assert jobs.why_waiting() == []


def test_jobs_that_nothing_holds_are_told_with_what_was_done(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def nap() -> None:
        gate.wait()

    with held(jobs, gate, thread_slots=1):
        nap.enqueue()
        gate.has_started()
        nap.enqueue()
        assert set(found(jobs)) == {("default", "workers_busy")}


def test_counts_stop_where_they_help_no_more(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    @jobs.task
    def send() -> None: ...

    monkeypatch.setattr(ops_why_queue, "MOST_COUNTED", 100)
    monkeypatch.setattr(ops_why, "MOST_COUNTED", 100)
    stored = send.enqueue_many([{}] * 150)
    group = found(jobs)["default", "no_worker"]
    assert (group.jobs, group.at_least) == (100, True)
    behind = stored[-1].why().blockers[-1]
    assert behind.details["ahead"] == 100


def test_a_tenant_sees_only_its_own(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    for tenant in ("acme", "umbrella", "umbrella", ""):
        send.using(tenant=tenant).enqueue()
    mine = send.using(tenant="acme", delay=3600).enqueue()
    groups = found(jobs, tenant="acme")
    assert {name: group.jobs for (_, name), group in groups.items()} == {"no_worker": 1, "not_due": 1}
    assert groups["default", "not_due"].example == mine.id
