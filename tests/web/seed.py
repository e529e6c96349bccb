"""Real data for the pages: tasks that end, fail, retry and take long, in several queues, for several tenants.

`python -m tests.web.seed [URL] [--port N]` serves the dashboard with it, a worker running, for people who want to look.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event

from duly import Backoff, Conflict, Duly, current_job
from tests.helpers import eventually

SOON = Backoff.fixed("30ms", max_attempts=3)


class Seeded:
    """A `Duly` with jobs in every state, and what it takes to let the long ones end."""

    def __init__(self, jobs: Duly) -> None:
        self.jobs = jobs
        self.over = Event()
        self.ids: dict[str, str] = {}
        self._declare()

    def _declare(self) -> None:
        jobs, over = self.jobs, self.over

        @jobs.task(queue="mail", name="mail.send")
        def send(to: str, subject: str) -> dict[str, object]:
            current_job().log(f"connected to mx.example for {to}")
            current_job().log("250 OK, queued")
            return {"to": to, "accepted": True, "bytes": 2048}

        @jobs.task(queue="crawl", name="crawl.fetch", retry=SOON)
        def fetch(url: str, depth: int = 0) -> str:
            current_job().log(f"GET {url}")
            if "down" in url:
                raise ConnectionError(f"{url} did not answer within 10 s")
            return "200 OK"

        @jobs.task(queue="reports", name="reports.build")
        def build(month: str, pages: int = 40) -> str:
            for page in range(pages):
                current_job().progress(page / pages, f"page {page + 1} of {pages}")
                if current_job().wait_cancelled(0.1) or over.wait(0.3):
                    return f"{month}: {page} pages"
            return month

        @jobs.task(name="billing.charge", retry=Backoff.fixed("1h", max_attempts=5))
        def charge(customer: int, api_key: str = "") -> None:
            raise RuntimeError(f"card of customer {customer} was declined")

        @jobs.task(name="old.task")
        def old(x: int) -> None: ...

        @jobs.task(name="housekeeping")
        def housekeeping() -> int:
            return 42

        @jobs.task(name="feed.refresh")
        def refresh(feed: str) -> str:
            if feed == "broken":
                raise ValueError("no <channel> in the feed")
            return feed

        self.send, self.fetch, self.build, self.charge = send, fetch, build, charge
        self.old, self.housekeeping, self.refresh = old, housekeeping, refresh

    def fill(self) -> None:
        """Store jobs of every kind."""
        tenants = ("acme", "globex", "initech")
        for n in range(24):
            task = self.send.using(tenant=tenants[n % 3], priority=n * 4 % 100, tags=["newsletter"], enqueued_by="cron")
            self.ids["sent"] = task.enqueue(f"person{n}@example.org", f"Your weekly letter, number {n}").id
        for n in range(8):
            self.fetch.using(tenant="acme").enqueue(f"https://example.com/page/{n}", n)
        self.ids["failed"] = self.fetch.using(tenant="globex").enqueue("https://down.example.net/", 2).id
        self.fetch.enqueue("https://down.example.org/")
        self.ids["retrying"] = self.charge.using(tenant="initech").enqueue(7, "sk_live_1234567890").id
        self.ids["running"] = self.build.using(tenant="acme").enqueue("2030-01", 300).id
        self.build.enqueue("2030-02", 200)
        self.ids["later"] = self.send.using(delay="3h", priority=20).enqueue("later@example.org", "Not yet").id
        self.ids["queued"] = self.send.using(queue="bulk", tenant="globex").enqueue("slow@example.org", "Waits").id
        for n in range(12):
            self.send.using(queue="bulk", tenant=tenants[n % 2]).enqueue(f"bulk{n}@example.org", "Waits")
        self.ids["cancelled"] = self.send.using(delay="9h").enqueue("never@example.org", "Never mind").id
        self.jobs.cancel(self.ids["cancelled"], "changed our mind")
        self.ids["daily"] = self.housekeeping.recur("night", cron="30 3 * * *", timezone="Europe/Berlin").id
        self.ids["feed"] = self.refresh.recur("news", every="10m", args={"feed": "news"}, tenant="acme").id
        self.ids["broken"] = self.refresh.recur("broken", every="1h", args={"feed": "broken"}, name="Broken feed").id
        self.ids["off"] = self.refresh.recur("blog", cron="@hourly", args={"feed": "blog"}).id
        self.jobs.recurring_by_id(self.ids["off"]).disable("the blog is closed")
        with self.jobs.acting_as("alice", via="cli"):
            self.jobs.pause(queue="bulk", reason="the mail server is being moved")
            self.jobs.set_weight("acme", 3)

    @contextmanager
    def working(self) -> Iterator[None]:
        """A worker that runs them, until all that can end has."""
        with self.jobs.worker(["default", "mail", "crawl", "reports"], grace=2):
            eventually(self._settled, within=30)
            for _ in range(3):
                for name in ("daily", "feed", "broken"):
                    self._once_more(self.ids[name])
            try:
                yield
            finally:
                self.over.set()

    def _settled(self) -> bool:
        job = self.jobs.get(self.ids["running"])
        return (
            self.jobs.get(self.ids["failed"]).state == "failed"
            and self.jobs.get(self.ids["retrying"]).attempts == 1
            and not any(row[0] in ("mail", "crawl") for row in self.jobs.counts().waiting)
            and job.state == "running"
            and (job.progress or 0) > 0
        )

    def _once_more(self, job_id: str) -> None:
        before = len(self.jobs.store.runs_of(job_id))
        with suppress(Conflict):  # one that fails and comes again by itself may run at this moment, which is as good
            self.jobs.recurring_by_id(job_id).run_now()
        eventually(lambda: len(self.jobs.store.runs_of(job_id)) > before, within=20)


def main() -> None:
    """Serve the dashboard with real data."""
    import uvicorn

    from duly.web import Principal, create_app

    url = next((each for each in sys.argv[1:] if ":" in each), "sqlite:////tmp/duly-seed.db")
    port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 8001
    jobs = Duly(url)
    seeded = Seeded(jobs)
    begun = time.monotonic()
    seeded.fill()
    with seeded.working():
        print(f"http://127.0.0.1:{port}/ after {time.monotonic() - begun:.1f} s", seeded.ids, flush=True)
        app = create_app(jobs, auth=lambda request: Principal.make("alice", ["admin"]), rate=1_000, burst=5_000)
        uvicorn.run(app, port=port, log_level="warning", timeout_graceful_shutdown=1)
    jobs.close()


if __name__ == "__main__":
    main()
