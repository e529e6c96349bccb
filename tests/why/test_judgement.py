"""What needs no database: the order of what decides, a sentence for every reason, and commands that there are."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest

from duly.cli import main
from duly.domain.limits import Rate
from duly.domain.records import ProcessIdentity, WorkerRecord
from duly.store.ops_why import GateFacts, Turn, WorkerFacts
from duly.why import advice, turn
from duly.why.answer import Blocker, Reason, in_order
from duly.why.lane import Room, room
from duly.why.words import _WORDS

pytestmark = pytest.mark.requirement("C15")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12"


def test_there_is_a_sentence_for_every_reason() -> None:
    assert set(_WORDS) == set(Reason)


def test_what_only_people_end_decides_before_what_time_ends_and_that_before_what_work_ends() -> None:
    paused = Blocker(reason=Reason.PAUSED, scope="queue", name="a")
    soon = Blocker(reason=Reason.RATE_USED_UP, until=NOW + timedelta(seconds=1))
    late = replace(paused, until=NOW + timedelta(hours=1))
    full = Blocker(reason=Reason.LIMIT_FULL)
    damage = Blocker(reason=Reason.NOWHERE)
    due = Blocker(reason=Reason.NOT_DUE, until=NOW)
    nobody = Blocker(reason=Reason.NO_WORKER)
    assert in_order([full, soon, late, paused, due, damage, nobody]) == (damage, due, paused, nobody, late, soon, full)


GATE = GateFacts("task", "send", slots=2, rate=Rate(5, 1_000_000, 3), most_waiting=9, live=2)
COMMANDS = [
    advice.FIX,
    advice.CHECK,
    advice.resume("queue", "a b"),
    advice.resume("key", "fetch/it's"),
    advice.raise_slots(GATE),
    advice.raise_slots(GATE._replace(scope="tenant", name="acme")),
    advice.raise_slots(GATE._replace(scope="key", name="fetch/a", own_rate=False)),
    advice.raise_rate(GATE),
    advice.raise_rate(GATE._replace(scope="key", name="fetch/a", own_rate=False)),
    advice.raise_rate(GATE._replace(scope="minute", name="acme")),
    advice.raise_rate(GATE._replace(scope="day", name="acme")),
    advice.look_at_errors("send"),
    advice.start_worker(),
    advice.start_worker("mail"),
    advice.show(JOB),
    advice.retry(JOB),
    advice.cancel(JOB),
    advice.boost(JOB),
    advice.schedule("enable", JOB),
    advice.schedule("run", JOB),
    advice.command("why", JOB),
]


@pytest.mark.parametrize("text", COMMANDS)
def test_every_command_that_is_advised_can_be_given(text: str) -> None:
    program, *words = shlex.split(text)
    assert program == "duly"
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"no command {words[0]}"
        command, words = found, words[1:]
    command.make_context(text, words)  # fails for an option that there is not


def test_raising_one_part_of_a_limit_says_the_others_again() -> None:
    before, after = "duly limits set --task send", "--burst 3 --most-waiting 9"
    assert advice.raise_slots(GATE) == f"{before} --concurrency 3 --rate 5/s {after}"
    assert advice.raise_rate(GATE) == f"{before} --concurrency 2 --rate 10/s {after}"


# -- how full a worker is ---------------------------------------------------------------------------------------------

PROCESS = ProcessIdentity(host="h", boot_id="b", pid_namespace="", pid=1, process_started_at="")
RECORD = WorkerRecord(
    id="w",
    process=PROCESS,
    started_at=0,
    seen_at=0,
    lease_us=15_000_000,
    queues='["default", "mail"]',
    tasks='["nap", "quick"]',
    slots=110,
    wake=None,
    idle=False,
    state="running",
    version="1",
)
CAPACITY = json.dumps(
    {
        "pools": [
            {"kind": "thread", "slots": 10, "tasks": None},
            {"kind": "async", "slots": 100, "tasks": ["quick"]},
        ],
        "queues": {"mail": 2},
    }
)


@pytest.mark.parametrize(
    "capacity, queue, task, expected",
    [
        (None, "default", "nap", Room(110, 15)),
        (CAPACITY, "default", "nap", Room(10, 10)),
        (CAPACITY, "default", "quick", Room(100, 5)),
        (CAPACITY, "mail", "quick", Room(2, 1)),
    ],
)
def test_a_worker_is_full_by_kind_and_by_queue(capacity: str | None, queue: str, task: str, expected: Room) -> None:
    load = {("nap", "default"): 10, ("quick", "default"): 4, ("quick", "mail"): 1}
    assert room(WorkerFacts(replace(RECORD, capacity=capacity), load), queue, task) == expected


# -- its turn ---------------------------------------------------------------------------------------------------------


def the_turn(**differs: object) -> Turn:
    values: dict[str, object] = {
        "ahead_in_lane": 9,
        "in_lane": 100,
        "first": (),
        "ahead": {("", "send"): 9},
        "gates": (),
        "tenants": {"": 1.0},
        "ran_in_queue": 600,
        "ran_of_tenant": 600,
        "ran_in_lane": 600,
        "measured_us": 60_000_000,
    }
    return Turn(**{**values, **differs})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "differs, expected",
    [
        ({}, 1.0),
        ({"ran_in_lane": 60}, 10.0),
        ({"ran_in_lane": 0}, 1.0),
        ({"ran_in_lane": 0, "ran_of_tenant": 0}, 1.0),
        ({"ran_in_lane": 0, "ran_of_tenant": 0, "tenants": {"": 1.0, "acme": 3.0}}, 4.0),
        ({"ran_in_lane": 0, "ran_of_tenant": 0, "ran_in_queue": 0}, None),
        ({"measured_us": 0}, None),
    ],
)
def test_the_expected_start_goes_by_what_was_measured(differs: dict[str, object], expected: float | None) -> None:
    us = turn.expected(the_turn(**differs), 9, tenant="", fair=True)
    assert (None if us is None else us / 1e6) == expected
