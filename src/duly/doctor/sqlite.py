"""The SQLite file: how it is journalled, where it lies, whether it can be written and is sound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from duly.doctor.finding import Area, Finding
from duly.doctor.indexes import indexes
from duly.doctor.words import size
from duly.domain.errors import DatabaseUnavailable
from duly.store import filesystem, migrate, ops_doctor
from duly.store.call import Dialect
from duly.store.lockfile import LockFile
from duly.store.sqlite import RESET_BYTES, SqliteDatabase

if TYPE_CHECKING:
    from duly.app import Duly

AREA = Area("database")
LOCK_SECONDS = 2.0
SMALL_FILE = 64 << 20
"""A file up to this size is checked through in well under a second."""
LITTLE_SPACE, NO_SPACE = 1 << 30, 100 << 20


def check(app: Duly, database: SqliteDatabase, *, deep: bool) -> Iterator[Finding]:
    """Look at the file and what lies beside it."""
    path = database.path
    [version] = database.read(lambda: ops_doctor.word("doctor_version"))
    [mode] = database.read(lambda: ops_doctor.word("doctor_journal"))
    yield journal(version, mode, app.settings.synchronous)
    yield log_size(_size(path.with_name(f"{path.name}-wal")))
    yield disk(filesystem.kind_of(path.parent))
    yield space(filesystem.free_bytes(path.parent), _size(path))
    yield can_lock(database.lock_path)
    yield from indexes(database.read(lambda: ops_doctor.indexes("")), migrate.indexes(Dialect.SQLITE))
    if deep or _size(path) <= SMALL_FILE:
        yield sound(database.read(lambda: ops_doctor.word("doctor_quick_check")))
    else:
        yield AREA.info("quick_check", f"{size(_size(path))} were not read through", "to have that done: --deep")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def journal(version: str, mode: str, synchronous: str) -> Finding:
    """Whether a commit survives, and readers do not wait for writers."""
    evidence = {"version": version, "journal_mode": mode, "synchronous": synchronous}
    if mode.lower() != "wal":
        return AREA.warning(
            "journal",
            f"SQLite {version}: the file is in journal mode {mode!r}, not WAL",
            "start a worker: it switches to WAL. If the mode comes back, look for who sets it",
            **evidence,
        )
    if synchronous.lower() not in ("full", "extra"):
        what = f"SQLite {version}, WAL; with synchronous={synchronous} a power cut may take the last commits"
        return AREA.info("journal", what, 'set synchronous = "full" if that matters', **evidence)
    return AREA.ok("journal", f"SQLite {version}, WAL, synchronous={synchronous}", **evidence)


def log_size(n: int) -> Finding:
    """Whether the write-ahead log is kept short."""
    if n > 2 * RESET_BYTES:
        return AREA.warning(
            "wal",
            f"the write-ahead log has grown to {size(n)}: somebody reads without ever letting go",
            "look for a connection that keeps a read transaction open (a database browser, a cursor not read to its "
            "end) and close it",
            bytes=n,
        )
    return AREA.ok("wal", f"the write-ahead log has {size(n)}", bytes=n)


def disk(kind: str) -> Finding:
    """Whether the file is on a disk that one host owns."""
    if kind in filesystem.NETWORK:
        return AREA.error(
            "disk",
            f"the file is on a network disk ({kind}), where SQLite's write-ahead log is not safe",
            "move it to a local disk, or use PostgreSQL",
            filesystem=kind,
        )
    return AREA.ok("disk", f"on a local disk ({kind or 'of unknown kind'})", filesystem=kind)


def space(free: int, used: int) -> Finding:
    """Whether there is room to grow."""
    evidence = {"free_bytes": free, "database_bytes": used}
    if free < NO_SPACE:
        return AREA.error("space", f"only {size(free)} are free on the disk", "free some space now", **evidence)
    if free < max(LITTLE_SPACE, used):
        return AREA.warning(
            "space",
            f"only {size(free)} are free on the disk, beside a database of {size(used)}",
            "free some space, or move the file",
            **evidence,
        )
    return AREA.ok("space", f"{size(used)} in use, {size(free)} free", **evidence)


def can_lock(path: Path) -> Finding:
    """Whether writers can take turns by the lock file."""
    lock = LockFile(path)
    try:
        with lock.held(LOCK_SECONDS):
            return AREA.ok("lock", "the lock file can be had", path=str(path))
    except DatabaseUnavailable as error:
        what, _, step = str(error).partition(". ")
        return AREA.error("lock", what, step, path=str(path))
    finally:
        lock.close()


def sound(said: list[str]) -> Finding:
    """Whether SQLite finds the file sound."""
    if said == ["ok"]:
        return AREA.ok("quick_check", "the file is sound (quick_check)")
    return AREA.error(
        "quick_check",
        f"SQLite finds the file damaged: {said[0] if said else 'no answer'}",
        "stop every worker, copy the file away, then restore a backup or use sqlite3's .recover",
        said=said,
    )
