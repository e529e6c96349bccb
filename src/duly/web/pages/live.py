"""Live pages: one read of the database serves every tab that is open on this server.

A tab listens by server-sent events (`/live`), or asks again and again (`/live.json`) where something between it and us
holds streams back. Whoever wants to know how everything stands asks the hub; what it read a moment ago is good for all.
Watching takes a twentieth of the database's time at most: the longer a read takes, the rarer it is made.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from duly.domain.ids import is_job_id
from duly.store import ops_pages
from duly.store.ops_pages import Minute, Snapshot
from duly.web.errors import WebError
from duly.web.guard import prefix_of
from duly.web.principal import Scope

if TYPE_CHECKING:
    from duly.web.asgi import Web

EVERY: Final = 2.0
"""Seconds between two looks, while somebody looks."""
FRESH: Final = 1.0
SHARE: Final = 20
LOOK_BACK: Final = 60
"""Minutes that the charts show."""
MOST_STREAMS: Final = 200
MOST_WATCHED: Final = 100
LONGEST_STREAM: Final = 600.0
"""Then the tab connects again, and has to show again who it is."""
QUIET: Final = 15.0
NOTICE: Final = 0.25
"""So long it takes streams to notice that the server stops."""


class Sample(NamedTuple):
    """How many jobs waited and ran at one moment."""

    at: int
    waiting: int
    running: int


class Hub:
    """How everything stands, read once for all who look."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._lock = threading.Lock()
        self._seen: dict[str | None, tuple[float, Snapshot]] = {}
        self._samples: dict[str | None, deque[Sample]] = {}
        self._minutes: dict[str | None, list[Minute]] = {}
        self._watched: dict[str | None, Counter[str]] = {}
        self._asked: dict[str | None, frozenset[str]] = {}
        self._reading: dict[tuple[int, str | None], asyncio.Future[Snapshot]] = {}
        self._written: dict[tuple[str, str | None, str], tuple[Snapshot, dict[str, Any]]] = {}
        self._closed = False
        self.streams = 0
        self.reads = 0
        self.pause = EVERY

    async def look(self, tenant: str | None, *, age: float = FRESH) -> Snapshot:
        """How everything stands, or stood `age` seconds ago at most, for all tenants or for one."""
        found = self._recent(tenant, age)
        if found is not None:
            return found
        key = (id(asyncio.get_running_loop()), tenant)
        reading = self._reading.get(key)
        if reading is None:
            reading = asyncio.ensure_future(self._web.call(self._read, tenant, age))
            self._reading[key] = reading
            reading.add_done_callback(lambda done: (self._reading.pop(key, None), done.cancelled() or done.exception()))
        return await asyncio.shield(reading)

    def forget(self) -> None:
        """Something was changed here: whoever looks next shall see it."""
        self._seen.clear()

    def close(self) -> None:
        """The server stops: end all streams, or it would wait for them. May be called by any thread."""
        self._closed = True

    async def rest(self) -> bool:
        """Wait until it is time for the next look. Returns whether the server stops instead."""
        until = time.monotonic() + self.pause
        while (left := until - time.monotonic()) > 0:
            if self._closed or _server_stops():
                return True
            await asyncio.sleep(min(left, NOTICE))
        return False

    def samples(self, tenant: str | None) -> list[Sample]:
        """How many jobs waited and ran, whenever somebody looked in the last hour."""
        return list(self._samples.get(tenant, ()))

    def watch(self, tenant: str | None, ids: Iterable[str], by: int = 1) -> None:
        """Somebody watches these jobs; with -1: no more."""
        watched = self._watched.setdefault(tenant, Counter())
        for job_id in ids:
            watched[job_id] += by
            if watched[job_id] <= 0:
                del watched[job_id]

    def has_asked(self, tenant: str | None, ids: Iterable[str]) -> bool:
        """Whether these jobs were looked at with the last read, also those that are gone."""
        return set(ids) <= self._asked.get(tenant, frozenset())

    def payload(self, page: str, prefix: str, snapshot: Snapshot) -> dict[str, Any]:
        """What a page shows that changes: written once for all who have it open."""
        from duly.web.pages.glance import live_parts

        key = (page, snapshot.tenant, prefix)
        known = self._written.get(key)
        if known is None or known[0] is not snapshot:
            known = (snapshot, live_parts(page, prefix, snapshot, self.samples(snapshot.tenant)))
            self._written[key] = known
        return known[1]

    def _recent(self, tenant: str | None, age: float) -> Snapshot | None:
        known = self._seen.get(tenant)
        return known[1] if known is not None and time.monotonic() - known[0] <= age else None

    def _read(self, tenant: str | None, age: float) -> Snapshot:
        with self._lock:
            found = self._recent(tenant, age)
            if found is not None:
                return found
            begun = time.monotonic()
            store, watched = self._web.jobs.store, sorted(self._watched.get(tenant, ()))
            before = self._minutes.get(tenant, [])
            found = store.database.read(
                lambda: ops_pages.snapshot(store.dialect, tenant=tenant, minutes=LOOK_BACK, known=before, watch=watched)
            )
            self._minutes[tenant], self._asked[tenant] = found.minutes, frozenset(watched)
            now = time.monotonic()
            self.reads += 1
            self.pause = max(EVERY, (now - begun) * SHARE)
            self._seen[tenant] = (now, found)
            self._sample(found)
            return found

    def _sample(self, snapshot: Snapshot) -> None:
        kept = self._samples.setdefault(snapshot.tenant, deque(maxlen=LOOK_BACK * 60))
        waiting = sum(row[3] for row in snapshot.waiting)
        kept.append(Sample(snapshot.now, waiting, sum(row[3] for row in snapshot.running)))
        while kept and kept[0].at < snapshot.now - LOOK_BACK * 60_000_000:
            kept.popleft()


def _server_stops() -> bool:
    """Whether the uvicorn that runs us was told to stop.

    It tells nobody who streams, and waits for them: an application in which we are mounted could not be stopped while a
    tab is open. But what handles its signals is a method of the server, which knows.
    """
    handler = signal.getsignal(signal.SIGTERM)
    return getattr(getattr(handler, "__self__", None), "should_exit", False) is True


def hub_of(request: Request) -> Hub:
    """The hub of a request."""
    from duly.web.asgi import web_of

    return web_of(request).hub


async def look(request: Request) -> Snapshot:
    """How everything stands for whoever asks."""
    from duly.web.asgi import web_of

    desk = web_of(request).desk(request)
    desk.need(Scope.READ)
    return await hub_of(request).look(desk.tenant)


class Tab(NamedTuple):
    """What a tab wants to be told."""

    page: str
    tenant: str | None
    prefix: str
    watch: tuple[str, ...]
    hides: bool


def _tab(request: Request) -> Tab:
    from duly.web.asgi import web_of

    web = web_of(request)
    desk = web.desk(request)
    desk.need(Scope.READ)
    ids = dict.fromkeys(each for each in request.query_params.get("watch", "").split(",") if is_job_id(each))
    page = request.query_params.get("page", "")[:20]
    return Tab(page, desk.tenant, prefix_of(request), tuple(ids)[:MOST_WATCHED], bool(web.redaction))


def _message(hub: Hub, tab: Tab, snapshot: Snapshot) -> dict[str, Any]:
    """What a tab is told: the parts that all have in common, and the jobs that it watches."""
    jobs = {}
    for job_id in tab.watch:
        job = snapshot.watched.get(job_id)
        jobs[job_id] = (
            None
            if job is None
            else {
                "state": job.state,
                "stamp": f"{job.state}.{job.token}.{job.attempt}.{job.cancel_at or ''}.{job.run_at or ''}",
                "progress": job.progress,
                # What it says may hold what is hidden; the page itself knows how to mask it.
                "text": None if tab.hides else job.progress_text,
            }
        )
    return {**hub.payload(tab.page, tab.prefix, snapshot), "jobs": jobs}


async def live_json(request: Request) -> Response:
    """How a page stands now: for tabs that cannot listen."""
    hub, tab = hub_of(request), _tab(request)
    hub.watch(tab.tenant, tab.watch)
    try:
        snapshot = await hub.look(tab.tenant, age=FRESH)
        if not hub.has_asked(tab.tenant, tab.watch):
            hub.forget()
            snapshot = await hub.look(tab.tenant, age=FRESH)
    finally:
        hub.watch(tab.tenant, tab.watch, -1)
    return JSONResponse({**_message(hub, tab, snapshot), "again_in": hub.pause * 2.5})


async def live(request: Request) -> Response:
    """A stream of how a page stands, for as long as it is open."""
    hub, tab = hub_of(request), _tab(request)
    if hub.streams >= MOST_STREAMS:
        raise WebError(503, "too_many_streams", "too many tabs listen already", "ask /live.json instead")
    return StreamingResponse(
        _stream(hub, tab),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no", "cache-control": "no-store"},
    )


async def _stream(hub: Hub, tab: Tab) -> AsyncGenerator[str, None]:
    hub.streams += 1
    hub.watch(tab.tenant, tab.watch)
    try:
        begun, spoke, sent = time.monotonic(), time.monotonic(), ""
        yield "retry: 3000\n\n"
        while time.monotonic() - begun < LONGEST_STREAM:
            text = json.dumps(_message(hub, tab, await hub.look(tab.tenant, age=hub.pause * 0.9)))
            if text != sent:
                sent, spoke = text, time.monotonic()
                yield f"data: {text}\n\n"
            elif time.monotonic() - spoke > QUIET:
                spoke = time.monotonic()
                yield ": still here\n\n"
            if await hub.rest():
                break
    finally:
        hub.streams -= 1
        hub.watch(tab.tenant, tab.watch, -1)
