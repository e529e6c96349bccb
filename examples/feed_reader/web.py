"""Talks to feeds and hubs over HTTP, with the standard library: conditional requests, cache headers, RSS."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.message import Message
from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen
from xml.etree.ElementTree import ParseError, fromstring

SILENCE_SECONDS = 10.0
MOST_BYTES = 8 * 1024 * 1024
AGENT = {"User-Agent": "duly-feed-reader"}
MAX_AGE = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
HUB = re.compile(r"<([^>]+)>\s*;[^,]*\brel=\"?hub\b", re.IGNORECASE)


class FeedError(Exception):
    """A feed or its hub could not be used this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry, as its feed describes it."""

    guid: str
    title: str
    link: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a feed answered."""

    changed: bool
    """False for 304: the entries that are stored are all there are."""
    max_age: int | None
    """For how many seconds there is no use in asking again; None if the answer does not say."""
    etag: str | None
    last_modified: str | None
    hub_url: str | None
    title: str | None = None
    entries: tuple[Entry, ...] = ()


def check_url(url: str) -> str:
    """Return the address if it is one that can be fetched."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FeedError(f"{url!r} is not a web address: it must start with http:// or https://")
    return url


def fetch(url: str, *, etag: str | None, last_modified: str | None, stop: Callable[[], bool]) -> Fetched:
    """Ask for a feed, and for nothing if it has not changed. `stop` is asked between pieces of the answer."""
    headers = dict(AGENT)
    if etag is not None:
        headers["If-None-Match"] = etag
    if last_modified is not None:
        headers["If-Modified-Since"] = last_modified
    try:
        with urlopen(Request(check_url(url), headers=headers), timeout=SILENCE_SECONDS) as response:
            body = read(response, stop)
    except HTTPError as error:
        with error:
            if error.code == 304:
                return answer(error.headers)
            raise FeedError(f"{error.code} {error.reason}") from error
    except TimeoutError as error:
        raise FeedError(f"silent for {SILENCE_SECONDS:g} s") from error
    except (OSError, HTTPException) as error:
        raise FeedError(f"cannot be reached: {getattr(error, 'reason', error)}") from error
    title, entries = parse(body)
    return replace(answer(response.headers), changed=True, title=title, entries=entries)


def read(response: HTTPResponse, stop: Callable[[], bool]) -> bytes:
    """Read an answer piece by piece."""
    body = b""
    while piece := response.read1(64 * 1024):
        body += piece
        if len(body) > MOST_BYTES:
            raise FeedError(f"longer than {MOST_BYTES} bytes")
        if stop():
            raise InterruptedError("told to stop")
    return body


def answer(headers: Message) -> Fetched:
    """What an answer says about when and how to ask again."""
    age, hub = MAX_AGE.search(headers.get("Cache-Control", "")), HUB.search(headers.get("Link", ""))
    return Fetched(
        changed=False,
        max_age=None if age is None else int(age[1]),
        etag=headers.get("ETag"),
        last_modified=headers.get("Last-Modified"),
        hub_url=None if hub is None else hub[1],
    )


def parse(body: bytes) -> tuple[str, tuple[Entry, ...]]:
    """Read RSS."""
    try:
        root = fromstring(body)
    except ParseError as error:
        raise FeedError(f"not a feed: {error}") from error
    channel = root.find("channel")
    if root.tag != "rss" or channel is None:
        raise FeedError(f"not a feed: it begins with <{root.tag}>")
    entries = []
    for item in channel.findall("item"):
        link = (item.findtext("link") or "").strip() or None
        guid = (item.findtext("guid") or "").strip() or link
        if guid is not None:
            entries.append(Entry(guid=guid, title=(item.findtext("title") or guid).strip(), link=link))
    return (channel.findtext("title") or "").strip(), tuple(entries)


def subscribe_at_hub(hub_url: str, topic: str, *, lease_seconds: int) -> None:
    """Ask a WebSub hub to send what is new. (A real one then asks back at a callback, which is left out here.)"""
    form = {"hub.mode": "subscribe", "hub.topic": topic, "hub.lease_seconds": str(lease_seconds)}
    try:
        with urlopen(Request(hub_url, urlencode(form).encode(), AGENT), timeout=SILENCE_SECONDS):
            pass
    except HTTPError as error:
        with error:
            raise FeedError(f"hub {hub_url}: {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise FeedError(f"hub {hub_url} cannot be reached: {getattr(error, 'reason', error)}") from error
