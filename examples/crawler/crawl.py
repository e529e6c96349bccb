"""The crawl of a page, and the sweep for pages not crawled for long: `duly worker examples.crawler.crawl:jobs`."""

from __future__ import annotations

import os
from contextlib import suppress

from duly import Backoff, Conflict, RateLimited

from . import pages
from .database import jobs, transaction
from .fetch import Gone, TooMany, address, fetch, host_of

ASKED_FOR = 60
"""The priority of what somebody waits for. Scheduled crawls have 10 to 30, pages found by a link 0; all rise by age."""


@jobs.task(
    queue="crawl",
    timeout="1m",
    retry=Backoff.patient(max_retries=3, give_up_on=Gone),  # after 1, 2 and 4 minutes, each spread by 20 %
    concurrency_key=lambda args: host_of(address(args.url)),
    per_key=1,  # one request at a time to each host, however many workers there are ...
    rate_per_key=os.environ.get("CRAWLER_RATE", "2/s"),  # ... and so many a second
    burst_per_key=1,
)
def crawl(url: str) -> int:
    """Fetch a page and enqueue those that it links to and nobody knew. Returns how many.

    It may be cut off anywhere and run again: what it found is stored, and enqueued, in one transaction.
    """
    url = address(url)
    try:
        page = fetch(url)
    except TooMany as refusal:
        raise RateLimited(refusal.wait, str(refusal)) from refusal  # holds the host; no attempt of this job is lost
    except Gone:
        with transaction() as connection:
            pages.gone(connection, url)
        raise
    with transaction() as connection:
        new = pages.add(connection, {url, *page.links})
        pages.crawled(connection, url, page.title)
        found = [{"url": link} for link in new if link != url]
        crawl.using(unique=True, enqueued_by="crawl", connection=connection).enqueue_many(found)
    return len(found)


def ask_for(url: str) -> tuple[str, bool]:
    """Have a page crawled soon. Returns its job, and whether that is new: at most one waits or runs for each page."""
    url = address(url)
    with transaction() as connection:
        pages.add(connection, [url])
        job = crawl.using(unique=True, priority=ASKED_FOR, enqueued_by="somebody", connection=connection).enqueue(url)
    if not job.created and job.priority < ASKED_FOR:
        with suppress(Conflict):  # it has started: so much the better
            jobs.set_priority(job.id, ASKED_FOR)
    return job.id, job.created


jobs.sweep(
    crawl,
    stale=pages.STALE,
    older_than=os.environ.get("CRAWLER_STALE_AFTER", "30d"),
    every=os.environ.get("CRAWLER_SWEEP_EVERY", "6h"),
)
