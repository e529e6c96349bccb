"""Many jobs in one call: all or none, and safe to repeat."""

from __future__ import annotations

import pytest

from duly.domain.errors import DatabaseError
from duly.domain.ids import uuid7, uuid7_many
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.store.factory import Factory
from tests.store.raw import Raw

pytestmark = pytest.mark.everywhere


def test_none_at_all_is_none(make: Factory, store: Store) -> None:
    assert store.enqueue_many(make.new(), []) == []
    assert store.enqueue_many(make.new(unique_mode="skip", unique_scope="live"), []) == []


def test_each_has_its_own_arguments_and_all_have_the_models_options(
    make: Factory, store: Store, clock: TestClock
) -> None:
    rows = [(job_id, f'{{"n": {n}}}', None) for n, job_id in enumerate(uuid7_many(5))]
    model = make.new(task="t", queue="q", tenant="acme", priority=40, max_attempts=2, tags='["x"]', expires_us=7)
    answers = store.enqueue_many(model, rows)
    assert answers == [(row[0], True) for row in rows]
    for job_id, args, _ in rows:
        found = make.get(job_id)
        assert (found.args, found.task, found.queue, found.tenant) == (args, "t", "q", "acme")
        assert (found.priority, found.max_attempts, found.tags) == (40, 2, '["x"]')
        assert (found.created_at, found.run_at, found.expires_at) == (
            clock.now_us(),
            clock.now_us(),
            clock.now_us() + 7,
        )


def test_jobs_of_one_call_are_claimed_in_their_order(make: Factory) -> None:
    ids = make.many(50)
    assert [job.id for job in make.claim(50)] == ids


@pytest.mark.requirement("B7")
def test_many_with_a_delay_are_scheduled(make: Factory, store: Store, clock: TestClock) -> None:
    make.many(3, delay_us=us(10))
    assert make.claim(3) == []
    clock.advance(10)
    store.promote()
    assert len(make.claim(3)) == 3


@pytest.mark.requirement("B6")
@pytest.mark.parametrize("delay", [0, 5_000_000])
def test_a_bulk_enqueue_may_be_repeated(make: Factory, store: Store, raw: Raw, delay: int) -> None:
    rows = [(job_id, "{}", None) for job_id in uuid7_many(20)]
    model = make.new(delay_us=delay)
    first = store.enqueue_many(model, rows)
    assert store.enqueue_many(model, rows) == first
    assert raw.count("jobs") == 20


def test_repeating_a_bulk_enqueue_brings_nothing_back_that_has_started_or_ended(
    make: Factory, store: Store, raw: Raw
) -> None:
    rows = [(job_id, "{}", None) for job_id in uuid7_many(6)]
    store.enqueue_many(make.new(), rows)
    claimed = make.claim(4)
    make.finish(claimed[0])
    make.finish(claimed[1], "failed")
    store.enqueue_many(make.new(), rows)
    assert [make.state(row[0]) for row in rows] == ["succeeded", "failed", "running", "running", "queued", "queued"]


def test_a_repetition_that_brings_more_stores_only_what_is_new(make: Factory, store: Store, raw: Raw) -> None:
    rows = [(job_id, "{}", None) for job_id in uuid7_many(6)]
    store.enqueue_many(make.new(), rows[:3])
    store.enqueue_many(make.new(), rows)
    assert raw.count("jobs") == raw.count("waiting") == 6


def test_a_bulk_call_that_cannot_be_stored_leaves_nothing(make: Factory, store: Store, raw: Raw) -> None:
    twice = uuid7()
    rows = [(uuid7(), "{}", None), (twice, "{}", None), (twice, "{}", None)]
    with pytest.raises(DatabaseError):
        store.enqueue_many(make.new(), rows)
    assert raw.count("jobs") == raw.count("waiting") == 0


def test_difficult_text_comes_back_as_it_was(make: Factory, store: Store) -> None:
    texts = ['{"a": "\\\\N"}', '{"a": "tab\\tnew\\nline"}', '{\n\t"b": "€😀\\\\"\r\n}', '{"c": "\\\\."}']
    rows = [(job_id, text, None) for job_id, text in zip(uuid7_many(len(texts)), texts, strict=True)]
    store.enqueue_many(make.new(task="tab\there", tenant="line\nbreak", tags='["\\\\N"]'), rows)
    for job_id, text, _ in rows:
        found = make.get(job_id)
        assert (found.args, found.task, found.tenant, found.tags) == (text, "tab\there", "line\nbreak", '["\\\\N"]')


def test_more_than_one_chunk_is_stored_whole(make: Factory, store: Store, raw: Raw) -> None:
    ids = make.many(12_345)
    assert raw.count("jobs") == raw.count("waiting") == len(ids)


@pytest.mark.requirement("D6")
def test_jobs_with_and_without_a_key_of_limits_go_to_their_own_places(make: Factory, store: Store, raw: Raw) -> None:
    ids = uuid7_many(7)
    rows = [(job_id, "{}", None, "k" if n % 3 == 0 else None) for n, job_id in enumerate(ids)]
    store.enqueue_many(make.new(), rows)
    keyed = {job_id for job_id, _, _, key in rows if key}
    assert {row[0] for row in raw.rows("SELECT id FROM duly.parked WHERE reason = 'arrived' AND mark = 'k'")} == keyed
    assert {row[0] for row in raw.rows("SELECT id FROM duly.waiting")} == set(ids) - keyed
