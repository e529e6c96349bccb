"""The two kinds of recurring jobs. `duly worker examples.feed_reader.tasks:jobs` runs them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from duly import Backoff, current_job

from . import feeds, web
from .database import jobs, transaction

MINUTE = timedelta(seconds=float(os.environ.get("FEED_READER_MINUTE", "60")))
"""How long a minute is: shorter than 60 seconds to see in half a minute what takes a day."""
SOONEST, DEFAULT, LATEST = MINUTE, 60 * MINUTE, 24 * 60 * MINUTE
WEBSUB_LEASE = timedelta(days=10)

# Runs in the same transaction as every change of a feed's job, whoever makes it: a worker that ends a run, a
# subscriber who comes or goes, an operator. NULL in next_fetch_at means that nobody fetches it.
MIRROR = """
    UPDATE feeds SET next_fetch_at = :next_run_at, consecutive_failures = :failures,
        last_fetch_at = COALESCE(:last_run_at, last_fetch_at),
        last_error = CASE WHEN CAST(:outcome AS TEXT) IS NULL THEN last_error ELSE :error END
    WHERE id = :key
"""


@jobs.task(
    timeout="1m",
    retry=Backoff.exponential(MINUTE, cap=LATEST, jitter=0.1),  # 1, 2, 4... minutes, a day at most
    mirror=MIRROR,
)
def fetch_feed(feed_id: str) -> timedelta:
    """Fetch a feed and store what is new. Returns how long to wait before the next time.

    An exception is a failed fetch: duly counts it, backs off, and the mirror shows both on the feed.
    """
    with transaction() as connection:
        feed = feeds.get(connection, feed_id)
    fetched = web.fetch(feed.url, etag=feed.etag, last_modified=feed.last_modified, stop=current_job().cancelled)
    with transaction() as connection:
        feeds.save(connection, feed_id, fetched)
    return wait_after(fetched.max_age)


def wait_after(max_age: int | None) -> timedelta:
    """How long to wait: what the feed asked for, within reason."""
    if max_age is None:
        return DEFAULT
    return min(max(timedelta(seconds=max_age), SOONEST), LATEST)


@jobs.recurring("@daily", failure="backoff")  # what could not be renewed would lapse before tomorrow
def renew_websub() -> int:
    """Renew every subscription at a hub that ends within 24 hours. Returns how many."""
    now = datetime.now(UTC)
    with transaction() as connection:
        expiring = feeds.expiring(connection, now + timedelta(hours=24))
    failed: list[web.FeedError] = []
    for each in expiring:
        try:
            web.subscribe_at_hub(each.hub_url, each.url, lease_seconds=int(WEBSUB_LEASE.total_seconds()))
        except web.FeedError as error:
            failed.append(error)  # one hub that is down keeps no other waiting
            continue
        with transaction() as connection:
            feeds.renewed(connection, each.feed_id, now + WEBSUB_LEASE)
    if failed:
        raise web.FeedError(f"{len(failed)} of {len(expiring)} not renewed; the first: {failed[0]}")
    return len(expiring)
