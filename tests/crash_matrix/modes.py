"""The ways in which an operation can fail at a statement boundary."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What happens at a boundary. The value is its name in tables."""

    CUT_BEFORE = "cut before send"
    CUT_AFTER = "cut after send"
    CUT_BEFORE_EACH = "cut before send, each try"
    CUT_AFTER_EACH = "cut after send, each try"
    CUT_IDLE = "cut after commit"
    EXIT = "process exit"
    EXIT_SENT = "process exit after commit"
    TERMINATED = "57P01"
    SERIALIZATION = "40001"
    DEADLOCK = "40P01"
    LOCK_TIMEOUT = "55P03"
    CROWDED = "53300"
    BUSY = "SQLITE_BUSY"
    FULL = "SQLITE_FULL"
    NO_PAGES = "SQLITE_FULL, no page left"
    IOERR = "SQLITE_IOERR"

    @property
    def every_time(self) -> bool:
        """Whether it happens at every try, until the caller is told of it; else once."""
        return self in (Mode.CUT_BEFORE_EACH, Mode.CUT_AFTER_EACH, Mode.CROWDED)

    @property
    def ends_process(self) -> bool:
        return self in (Mode.EXIT, Mode.EXIT_SENT)

    @property
    def only_last(self) -> bool:
        """Whether it is only of interest at the last boundary of a use: where it commits."""
        return self in (Mode.CUT_IDLE, Mode.EXIT_SENT)

    @property
    def may_commit(self) -> bool:
        """Whether the statement at the boundary was carried out."""
        return self in (Mode.CUT_AFTER, Mode.CUT_AFTER_EACH, Mode.CUT_IDLE, Mode.EXIT_SENT, Mode.NO_PAGES)

    @property
    def harmless(self) -> bool:
        """Whether the operation may not even notice."""
        return self in (Mode.CUT_IDLE, Mode.NO_PAGES)


ON_POSTGRES = (
    Mode.CUT_BEFORE,
    Mode.CUT_AFTER,
    Mode.CUT_BEFORE_EACH,
    Mode.CUT_AFTER_EACH,
    Mode.CUT_IDLE,
    Mode.EXIT,
    Mode.EXIT_SENT,
    Mode.TERMINATED,
    Mode.SERIALIZATION,
    Mode.DEADLOCK,
    Mode.LOCK_TIMEOUT,
    Mode.CROWDED,
)
ON_SQLITE = (Mode.BUSY, Mode.FULL, Mode.NO_PAGES, Mode.IOERR, Mode.EXIT, Mode.EXIT_SENT)
