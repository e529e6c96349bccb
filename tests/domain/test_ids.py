"""Job ids: version 7, in order of creation, whatever the clock, threads and forks do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.errors import InvalidOption
from duly.domain.ids import IdSequence, is_job_id, timestamp_of, uuid7, uuid7_many

MS = 1_000_000


def strictly_increasing(ids: list[str]) -> bool:
    return all(a < b for a, b in pairwise(ids))


def test_an_id_is_a_canonical_uuid_of_version_7() -> None:
    for text in [uuid7(), *uuid7_many(100)]:
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.version == 7
        assert parsed.variant == uuid.RFC_4122
        assert is_job_id(text)


@pytest.mark.requirement("D8")
def test_ids_sort_by_creation_whether_made_singly_or_in_bulk() -> None:
    ids: list[str] = []
    for size in range(50):
        ids.append(uuid7())
        ids += uuid7_many(size)
    assert strictly_increasing(ids)
    ids = [uuid7() for _ in range(20_000)]
    assert strictly_increasing(ids)


@pytest.mark.requirement("D8")
@given(
    st.lists(
        st.tuples(st.integers(-10_000, 10_000), st.integers(0, 4)),
        min_size=2,
        max_size=60,
    )
)
def test_ids_increase_while_the_clock_steps_back_and_forth(moves: list[tuple[int, int]]) -> None:
    now = 1_760_000_000_000 * MS
    sequence = IdSequence(lambda: now)
    ids: list[str] = []
    for milliseconds, count in moves:
        now += milliseconds * MS
        ids.append(sequence.next())
        ids += sequence.many(count)
    assert strictly_increasing(ids)
    assert all(uuid.UUID(text).version == 7 for text in ids)


def test_a_million_in_one_millisecond_increase() -> None:
    sequence = IdSequence(lambda: 1_760_000_000_000 * MS)
    ids = sequence.many(1_000_000)
    assert len(ids) == 1_000_000
    assert strictly_increasing(ids)
    assert ids[-1] < sequence.next()


def test_a_tail_that_is_used_up_moves_on_by_a_millisecond() -> None:
    sequence = IdSequence(lambda: 1_760_000_000_000 * MS)
    before = sequence.next()
    sequence._tail = (1 << 48) - 3
    sequence._step = 1
    ids = [before, *sequence.many(5), sequence.next()]
    assert strictly_increasing(ids)
    assert timestamp_of(ids[-1]) - timestamp_of(before) == timedelta(milliseconds=1)


def test_threads_share_one_sequence() -> None:
    made: list[list[str]] = [[] for _ in range(8)]

    def make(ids: list[str]) -> None:
        for _ in range(500):
            ids.append(uuid7())
            ids += uuid7_many(3)

    threads = [threading.Thread(target=make, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(strictly_increasing(ids) for ids in made)
    assert len({text for ids in made for text in ids}) == 8 * 500 * 4


def test_after_a_fork_the_child_has_a_lock_and_a_head_of_its_own() -> None:
    sequence = IdSequence(lambda: 1_760_000_000_000 * MS)
    last = sequence.next()
    head = sequence._head
    sequence._lock.acquire()  # by a thread that the child does not have
    sequence.after_fork()
    assert last < sequence.next()
    assert sequence._head != head


FORK_FOUR_TIMES = """
import os
from duly.domain.ids import uuid7, uuid7_many

print(uuid7(), flush=True)
for _ in range(4):
    if os.fork() == 0:
        os.write(1, (" ".join(uuid7() for _ in range(100)) + "\\n").encode())
        os._exit(0)
ids = uuid7_many(100)
for _ in range(4):
    os.wait()
print(*ids)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_parent_and_children_never_make_the_same_id() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK_FOUR_TIMES], capture_output=True, text=True, check=True, timeout=60
    )
    before, *families = (line.split() for line in done.stdout.splitlines())
    assert [len(ids) for ids in families] == [100] * 5
    assert all(strictly_increasing(before + ids) for ids in families)
    assert len({text for ids in families for text in ids}) == 500


@pytest.mark.requirement("D8")
def test_an_id_tells_when_it_was_made() -> None:
    before = datetime.fromtimestamp(time.time_ns() // MS / 1000, UTC)
    made = timestamp_of(IdSequence().next())
    assert before <= made <= datetime.now(UTC)
    assert made.tzinfo is UTC
    assert timestamp_of("017f22e2-79b0-7cc3-98c4-dc0c0c07398f") == datetime(
        2022, 2, 22, 19, 22, 22, tzinfo=UTC
    )  # the example of RFC 9562


@pytest.mark.parametrize(
    "text",
    [
        "2f1c1a3e-7c1b-4f7e-9f61-1d2f6a3c5b70",
        "017f22e2-79b0-7cc3-18c4-dc0c0c07398f",
        "ffffffff-ffff-7cc3-98c4-dc0c0c07398f",
        "",
        "x" * 36,
    ],
)
def test_text_that_holds_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        timestamp_of(text)


@pytest.mark.parametrize(
    "text, answer",
    [
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", True),
        ("2f1c1a3e-7c1b-4f7e-9f61-1d2f6a3c5b70", True),
        ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", False),
        ("017f22e279b07cc398c4dc0c0c07398f", False),
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n", False),
        ("", False),
        (None, False),
        (7, False),
    ],
)
def test_only_canonical_uuids_are_job_ids(text: object, answer: bool) -> None:
    assert is_job_id(text) is answer


def test_none_or_fewer_is_an_empty_list() -> None:
    assert uuid7_many(0) == uuid7_many(-1) == []
