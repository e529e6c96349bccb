"""The application's own tables. They live in the same SQLite file as duly's, so one transaction can change both."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from .feed import Episode

FILE = Path(os.environ.get("PODCASTS_FILE", "podcasts.db")).resolve()

TABLES = (
    """CREATE TABLE IF NOT EXISTS podcasts (
        id INTEGER PRIMARY KEY, feed_url TEXT NOT NULL UNIQUE, title TEXT, job_id TEXT, imported_at TEXT)""",
    """CREATE TABLE IF NOT EXISTS episodes (
        podcast_id INTEGER NOT NULL REFERENCES podcasts (id), guid TEXT NOT NULL,
        title TEXT NOT NULL, audio_url TEXT, published TEXT, PRIMARY KEY (podcast_id, guid))""",
    # Who ran what, and when by the machine's monotonic clock. It has no part in the work: it lets a test (or you)
    # check from outside that never more than three imports ran at once.
    """CREATE TABLE IF NOT EXISTS import_runs (
        job_id TEXT NOT NULL, fence INTEGER NOT NULL, podcast_id INTEGER NOT NULL, pid INTEGER NOT NULL,
        started REAL NOT NULL, ended REAL, PRIMARY KEY (job_id, fence))""",
)


@contextmanager
def connected() -> Iterator[sqlite3.Connection]:
    """Open a connection to the file for a moment."""
    with closing(sqlite3.connect(FILE, timeout=30, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # duly does it for the whole file, in turn with its writes
        yield connection


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Open a write transaction: kept if the block ends well, undone if it raises."""
    with connected() as connection:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection


def create_tables() -> None:
    """Make what is missing. Any number of processes may do so at once."""
    with transaction() as connection:
        for table in TABLES:
            connection.execute(table)


def add(connection: sqlite3.Connection, feed_url: str) -> int:
    """Put a podcast into the list, or find it there. Returns its id."""
    connection.execute("INSERT INTO podcasts (feed_url) VALUES (?) ON CONFLICT DO NOTHING", (feed_url,))
    row = connection.execute("SELECT id FROM podcasts WHERE feed_url = ?", (feed_url,)).fetchone()
    return int(row[0])


def note_job(connection: sqlite3.Connection, podcast_id: int, job_id: str) -> None:
    """Write down which job imports a podcast."""
    connection.execute("UPDATE podcasts SET job_id = ? WHERE id = ?", (job_id, podcast_id))


def everything() -> list[dict[str, object]]:
    """Every podcast, with how many of its episodes are here."""
    with connected() as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute(
            """SELECT id, feed_url, title, job_id, imported_at,
                      (SELECT count(*) FROM episodes WHERE podcast_id = podcasts.id) AS episodes
               FROM podcasts ORDER BY id"""
        )
        return [dict(row) for row in rows]


def feed_url_of(podcast_id: int) -> str:
    """Where a podcast's feed is."""
    with connected() as connection:
        row = connection.execute("SELECT feed_url FROM podcasts WHERE id = ?", (podcast_id,)).fetchone()
    if row is None:
        raise LookupError(f"there is no podcast {podcast_id}")
    return str(row[0])


def save_episodes(podcast_id: int, episodes: Iterable[Episode]) -> None:
    """Store episodes. The same one again, by its guid, replaces what was there: an import may run twice."""
    with transaction() as connection:
        connection.executemany(
            """INSERT INTO episodes (podcast_id, guid, title, audio_url, published) VALUES (?, ?, ?, ?, ?)
               ON CONFLICT (podcast_id, guid) DO UPDATE SET
               title = excluded.title, audio_url = excluded.audio_url, published = excluded.published""",
            [(podcast_id, each.guid, each.title, each.audio_url, each.published) for each in episodes],
        )


def finish_import(podcast_id: int, title: str) -> int:
    """Write down that a podcast is complete. Returns how many episodes it has."""
    with transaction() as connection:
        connection.execute(
            "UPDATE podcasts SET title = ?, imported_at = datetime('now') WHERE id = ?", (title, podcast_id)
        )
        row = connection.execute("SELECT count(*) FROM episodes WHERE podcast_id = ?", (podcast_id,)).fetchone()
    return int(row[0])


@contextmanager
def recorded_run(job_id: str, fence: int, podcast_id: int) -> Iterator[None]:
    """Keep in `import_runs` when a run began and ended. One that is cut off has no end."""
    with transaction() as connection:
        row = (job_id, fence, podcast_id, os.getpid(), time.monotonic())
        connection.execute(
            "INSERT INTO import_runs (job_id, fence, podcast_id, pid, started) VALUES (?, ?, ?, ?, ?)", row
        )
    try:
        yield
    finally:
        ended = time.monotonic()
        with transaction() as connection:
            connection.execute(
                "UPDATE import_runs SET ended = ? WHERE job_id = ? AND fence = ?", (ended, job_id, fence)
            )
