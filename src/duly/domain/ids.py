"""Job ids: UUID version 7 (RFC 9562) as text. They are made by the client and sort by creation time.

`uuid.uuid7` of Python 3.14 is not used: it promises no order between threads, nor with ids made in bulk, and
it builds an object that we would only turn into text. Here all ids of a process come from one sequence. That
is the one piece of module-level state in duly: "increasing within a process" cannot be had from less.
Ids are unique, not secret: from one, a neighbour may be guessed.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from duly.domain.errors import InvalidOption
from duly.domain.text import safe_repr

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TAIL_END = 1 << 48


class IdSequence:
    """Ever larger ids: a head (time and 26 random bits) per millisecond, and a tail of 48 bits that grows.

    The tail starts at 47 random bits and grows by a random step, so ids of other processes do not meet it.
    A clock that stands or steps back leaves the head as it is; a tail that is used up moves the head one
    millisecond on.
    """

    __slots__ = ("_head", "_lock", "_milliseconds", "_now_ns", "_step", "_tail")

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._milliseconds = -1
        self._head = ""
        self._tail = _TAIL_END
        self._step = 1

    def next(self) -> str:
        """Return one id, larger than all before it."""
        with self._lock:
            milliseconds = self._now_ns() // 1_000_000
            tail = self._tail + self._step
            if milliseconds > self._milliseconds or tail >= _TAIL_END:
                tail = self._new_head(milliseconds)
            self._tail = tail
            return f"{self._head}{tail:012x}"

    def many(self, count: int) -> list[str]:
        """Return `count` ids, each larger than the one before."""
        ids: list[str] = []
        with self._lock:
            while (missing := count - len(ids)) > 0:
                milliseconds = self._now_ns() // 1_000_000
                first = self._tail + self._step
                if milliseconds > self._milliseconds or first >= _TAIL_END:
                    first = self._new_head(milliseconds)
                tails = range(first, _TAIL_END, self._step)[:missing]
                head = self._head
                ids += [f"{head}{tail:012x}" for tail in tails]
                self._tail = tails[-1]
        return ids

    def after_fork(self) -> None:
        """Begin anew in a child process: its own lock, and a head that its parent does not use."""
        self._lock = threading.Lock()
        self._tail = _TAIL_END

    def _new_head(self, milliseconds: int) -> int:
        """Move on to `milliseconds`, or past the last one used; return the first tail there."""
        self._milliseconds = ms = max(milliseconds, self._milliseconds + 1)
        noise = int.from_bytes(os.urandom(12))
        variant_and_random = 0x8000 | (noise & 0x3FFF)
        random_a = noise >> 14 & 0xFFF
        self._head = f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{random_a:03x}-{variant_and_random:04x}-"
        self._step = (noise >> 26 & 0xFFFF) + 1
        return noise >> 42 & (_TAIL_END >> 1) - 1


_sequence = IdSequence()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_sequence.after_fork)

uuid7 = _sequence.next
uuid7_many = _sequence.many


def is_job_id(text: object) -> bool:
    """Whether `text` may be a job's id: a UUID in canonical form, of any version (others enqueue too)."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def timestamp_of(job_id: str) -> datetime:
    """Return when the id was made, to the millisecond, UTC."""
    if not is_job_id(job_id) or job_id[14] != "7" or job_id[19] not in "89ab":
        raise InvalidOption(f"{safe_repr(job_id)} is not a UUID of version 7, so it holds no time.")
    milliseconds = int(job_id[:8] + job_id[9:13], 16)
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise InvalidOption(f"{job_id!r} holds a time after the year 9999.") from None


def lowest_id_at(us: int) -> str:
    """Return what no id that was made at this moment or later is below, to the millisecond."""
    milliseconds = min(max(0, -(-us // 1_000)), (1 << 48) - 1)
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-0000-0000-000000000000"
