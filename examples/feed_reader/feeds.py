"""Feeds, subscriptions and entries: every statement on the application's own tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from .database import as_moment, query
from .web import Entry, Fetched

HAS_READERS = "EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = :feed_id AND unsubscribed_at IS NULL)"


class Feed(NamedTuple):
    """A feed, with what its job mirrors into it."""

    id: str
    url: str
    title: str | None
    etag: str | None
    last_modified: str | None
    readers: int
    entries: int
    next_fetch_at: datetime | None
    last_fetch_at: datetime | None
    consecutive_failures: int
    last_error: str | None
    websub_until: datetime | None


class Expiring(NamedTuple):
    """A subscription at a hub that is to be made or renewed."""

    feed_id: str
    url: str
    hub_url: str


def add(connection: Any, url: str) -> str:
    """Put a feed into the list, or find it there. Returns its id."""
    query(connection, "INSERT INTO feeds (id, url) VALUES (:id, :url) ON CONFLICT DO NOTHING", id=str(uuid4()), url=url)
    return str(query(connection, "SELECT id FROM feeds WHERE url = :url", url=url)[0][0])


def find(connection: Any, url: str) -> str | None:
    """A feed's id by its address."""
    rows = query(connection, "SELECT id FROM feeds WHERE url = :url", url=url)
    return str(rows[0][0]) if rows else None


def add_subscription(connection: Any, feed_id: str, reader: str, now: datetime) -> None:
    """Note that somebody reads a feed, perhaps again."""
    query(
        connection,
        """INSERT INTO subscriptions (feed_id, reader, subscribed_at) VALUES (:feed_id, :reader, :now)
           ON CONFLICT (feed_id, reader) DO UPDATE SET subscribed_at = :now, unsubscribed_at = NULL
           WHERE subscriptions.unsubscribed_at IS NOT NULL""",
        feed_id=feed_id,
        reader=reader,
        now=now,
    )


def end_subscription(connection: Any, feed_id: str, reader: str, now: datetime) -> bool:
    """Note that somebody reads a feed no more. Returns whether they did."""
    rows = query(
        connection,
        """UPDATE subscriptions SET unsubscribed_at = :now
           WHERE feed_id = :feed_id AND reader = :reader AND unsubscribed_at IS NULL RETURNING reader""",
        feed_id=feed_id,
        reader=reader,
        now=now,
    )
    return bool(rows)


def everything(connection: Any, feed_id: str | None = None) -> list[Feed]:
    """Every feed by its address, or one by its id."""
    rows = query(
        connection,
        """SELECT id, url, title, etag, last_modified,
                  (SELECT count(*) FROM subscriptions s WHERE s.feed_id = f.id AND s.unsubscribed_at IS NULL),
                  (SELECT count(*) FROM entries e WHERE e.feed_id = f.id),
                  next_fetch_at, last_fetch_at, consecutive_failures, last_error, websub_until
           FROM feeds f WHERE id = :feed_id OR CAST(:feed_id AS TEXT) IS NULL ORDER BY url""",
        feed_id=feed_id,
    )
    feeds = [Feed._make(row) for row in rows]
    return [
        feed._replace(
            next_fetch_at=as_moment(feed.next_fetch_at),
            last_fetch_at=as_moment(feed.last_fetch_at),
            websub_until=as_moment(feed.websub_until),
        )
        for feed in feeds
    ]


def get(connection: Any, feed_id: str) -> Feed:
    """One feed."""
    found = everything(connection, feed_id)
    if not found:
        raise LookupError(f"there is no feed {feed_id}")
    return found[0]


def save(connection: Any, feed_id: str, fetched: Fetched) -> None:
    """Store what a feed answered. The same entry again, by its guid, replaces what was there."""
    query(
        connection,
        """UPDATE feeds SET etag = :etag, last_modified = :last_modified, hub_url = :hub_url,
                  title = COALESCE(:title, title) WHERE id = :feed_id""",
        feed_id=feed_id,
        etag=fetched.etag,
        last_modified=fetched.last_modified,
        hub_url=fetched.hub_url,
        title=fetched.title,
    )
    if fetched.changed:
        save_entries(connection, feed_id, fetched.entries)


def save_entries(connection: Any, feed_id: str, entries: Sequence[Entry]) -> None:
    """Store entries."""
    for entry in entries:
        query(
            connection,
            """INSERT INTO entries (feed_id, guid, title, link) VALUES (:feed_id, :guid, :title, :link)
               ON CONFLICT (feed_id, guid) DO UPDATE SET title = excluded.title, link = excluded.link""",
            feed_id=feed_id,
            guid=entry.guid,
            title=entry.title,
            link=entry.link,
        )


def expiring(connection: Any, before: datetime) -> list[Expiring]:
    """What must be renewed at its hub: read by somebody, and not subscribed there until `before`."""
    rows = query(
        connection,
        """SELECT id, url, hub_url FROM feeds f WHERE hub_url IS NOT NULL
           AND (websub_until IS NULL OR websub_until < :before)
           AND EXISTS (SELECT 1 FROM subscriptions s WHERE s.feed_id = f.id AND s.unsubscribed_at IS NULL)
           ORDER BY id""",
        before=before,
    )
    return [Expiring._make(row) for row in rows]


def renewed(connection: Any, feed_id: str, until: datetime) -> None:
    """Note until when a hub sends what is new."""
    query(connection, "UPDATE feeds SET websub_until = :until WHERE id = :feed_id", feed_id=feed_id, until=until)
