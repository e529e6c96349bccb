"""Readers come and go. The feed's job follows in the same transaction: both happen, or neither."""

from __future__ import annotations

from datetime import UTC, datetime

from . import feeds
from .database import jobs, transaction
from .tasks import fetch_feed
from .web import check_url


def subscribe(reader: str, url: str) -> str:
    """Subscribe somebody to a feed. Returns the feed's id.

    The first reader makes its job, which runs at once. One who comes after the last has left enables it: it runs when
    it would have, or at once if that has passed.
    """
    check_url(url)
    with transaction() as connection:
        feed_id = feeds.add(connection, url)
        feeds.add_subscription(connection, feed_id, reader, datetime.now(UTC))
        fetch_feed.recur(feed_id, args={"feed_id": feed_id}, connection=connection)
    return feed_id


def unsubscribe(reader: str, url: str) -> bool:
    """End a subscription. Returns whether the feed is still fetched for somebody else.

    The condition is evaluated once the job is held: of two last readers who leave at the same moment the later one
    sees that nobody is left, and one who joins meanwhile is not overlooked.
    """
    with transaction() as connection:
        feed_id = feeds.find(connection, url)
        if feed_id is None or not feeds.end_subscription(connection, feed_id, reader, datetime.now(UTC)):
            raise LookupError(f"{reader} does not read {url}")
        job = jobs.recurring_job(fetch_feed, feed_id, connection=connection)
        return job.set_enabled(
            sql=feeds.HAS_READERS, params={"feed_id": feed_id}, reason="nobody reads it", connection=connection
        )
