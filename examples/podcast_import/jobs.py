"""The registry: every kind of job this application has, what runs it, and how many may run at once."""

from __future__ import annotations

from duly import Backoff, Duly, current_job

from . import podcasts
from .feed import BadFeed, open_feed

jobs = Duly(f"sqlite:///{podcasts.FILE}")


@jobs.task(
    concurrency=3,  # in all server processes together
    timeout="5m",
    retry=Backoff.exponential(1, cap=60, max_attempts=5, jitter=0.2, give_up_on=BadFeed),
)
def podcast_import(podcast_id: int) -> int:
    """Fetch a podcast's feed and store its episodes. Returns how many it has.

    It may be cut off anywhere and run again from the start: every step repeated leaves what it left the first time.
    """
    job = current_job()
    url = podcasts.feed_url_of(podcast_id)
    with podcasts.recorded_run(job.id, job.fence, podcast_id), open_feed(url) as feed:
        stored = 0
        for episodes in feed.batches():
            if job.cancelled():
                raise InterruptedError("told to stop")
            podcasts.save_episodes(podcast_id, episodes)
            stored += len(episodes)
            job.progress(feed.fraction, f"{stored} episodes")
        return podcasts.finish_import(podcast_id, feed.title)
