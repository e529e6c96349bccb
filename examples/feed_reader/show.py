"""The show: three feeds, three readers, one worker; what happens is told, and shown as a table."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from . import feeds
from .database import create_tables, jobs, transaction
from .feed_server import FeedServer
from .subscriptions import subscribe, unsubscribe
from .tasks import MINUTE, renew_websub

COLUMNS = "{:<20} {:>7} {:>7}  {:<12} {:<12} {:>8}  {}"


def run() -> None:
    """Run the show, about 25 seconds."""
    logging.getLogger("duly").setLevel(logging.ERROR)  # a feed that fails is part of the show
    create_tables()
    with FeedServer() as server, jobs.worker():
        news = server.publish("news", max_age=2, hub=True)
        blog = server.publish("blog")
        shaky = server.publish("shaky", max_age=3)
        shaky.trouble = "500"
        begun = time.monotonic()

        def wait_until(second: float) -> None:
            time.sleep(max(0.0, begun + second - time.monotonic()))

        def tell(text: str) -> None:
            print(f"\n{time.monotonic() - begun:4.0f} s  {text}", flush=True)

        tell(f"(A minute lasts {MINUTE.total_seconds():g} s here.) Ada reads news, blog and shaky; Bob reads news.")
        for feed in (news, blog, shaky):
            subscribe("ada", feed.url)
        subscribe("bob", news.url)
        wait_until(1)
        tell("Each was fetched at once. news asked for 2 s, blog for nothing (so an hour), shaky fails.")
        print_feeds()
        wait_until(6)
        tell("news is asked every 2 s and answers 304, not changed. shaky fails again, each time after twice as long.")
        print_feeds()
        print(f"      news answered {news.answers}, shaky {shaky.answers}")

        news.entries += 2
        shaky.trouble = None
        tell("Two entries are new in news; shaky is well again. Ada leaves news, Bob stays.")
        still = unsubscribe("ada", news.url)
        print(f"      news is {'still fetched, for Bob' if still else 'not fetched any more'}")
        wait_until(11)
        tell("shaky was found well at its next try: no failures, and as often as it asks for.")
        print_feeds()

        tell("Bob leaves news too, and nobody is left: it has no next fetch. Its job stays, disabled.")
        unsubscribe("bob", news.url)
        asked = len(news.answers)
        wait_until(16)
        print_feeds()
        print(f"      in these 5 s news was asked {len(news.answers) - asked} times")

        tell("Cy subscribes to news. Its time has passed meanwhile, so it is fetched at once.")
        subscribe("cy", news.url)
        wait_until(17.2)
        print_feeds()
        print(f"      news was asked {'once' if len(news.answers) - asked == 1 else 'more than once'}")

        renewing = jobs.recurring_job(renew_websub)
        tell(f"renew_websub runs daily, next at {renewing.next_run_at:%d %b %H:%M} UTC. An operator runs it now.")
        renewing.run_now()
        wait_until(20)
        print(f"      the hub was asked for {[urlsplit(url).path for url in server.hub_asked]}")
        print(f"      it runs next at {renewing.refresh().next_run_at:%d %b %H:%M} UTC, as before")
        tell(
            f"In all there are {len(jobs.recurring_jobs())} jobs, one for each feed and one to renew; no run added one."
        )
    jobs.close()


def print_feeds() -> None:
    """Print every feed as a line of a table."""
    now = datetime.now(UTC)
    with transaction() as connection:
        found = feeds.everything(connection)
    if not found:
        print("no feeds yet")
        return
    print(COLUMNS.format("feed", "readers", "entries", "fetched", "next fetch", "failures", "last error"))
    for feed in found:
        line = COLUMNS.format(
            (feed.title or feed.url.rpartition("/")[2] or feed.url)[:20],
            feed.readers,
            feed.entries,
            "-" if feed.last_fetch_at is None else f"{say(now - feed.last_fetch_at)} ago",
            when(feed.next_fetch_at, now),
            feed.consecutive_failures,
            feed.last_error or "",
        )
        print(line.rstrip(), flush=True)


def when(moment: datetime | None, now: datetime) -> str:
    """When something will be."""
    if moment is None:
        return "-"
    return "now" if moment <= now else f"in {say(moment - now)}"


def say(duration: timedelta) -> str:
    """A duration as people say it."""
    seconds = max(0.0, duration.total_seconds())
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
