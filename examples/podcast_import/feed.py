"""Reads RSS over HTTP piece by piece, so that episodes can be stored while the rest is still on its way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

SILENCE_SECONDS = 15.0
PIECE_BYTES = 64 * 1024
MOST_BYTES = 64 * 1024 * 1024
NOT_FOR_US = (400, 401, 403, 404, 410)


class BadFeed(Exception):
    """There is no podcast feed at this address, and asking again will not change that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode, as its feed describes it."""

    guid: str
    title: str
    audio_url: str | None
    published: str | None


def check_url(url: str) -> str:
    """Return the address if it is one that can be fetched."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadFeed(f"{url!r} is not a web address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadFeed(f"{url!r} is not a web address: it must start with http:// or https://")
    return url


@contextmanager
def open_feed(url: str) -> Iterator[Feed]:
    """Ask for a feed."""
    request = Request(check_url(url), headers={"User-Agent": "duly-podcast-import"})
    try:
        response = urlopen(request, timeout=SILENCE_SECONDS)
    except HTTPError as error:
        with error:
            if error.code in NOT_FOR_US:
                raise BadFeed(f"{url} answered {error.code} {error.reason}") from error
            raise
    with response:
        yield Feed(url, response)


class Feed:
    """A feed that is being read."""

    def __init__(self, url: str, response: HTTPResponse) -> None:
        self.title = ""
        self._url = url
        self._response = response
        self._length = response.length
        self._received = 0
        self._parser: XMLPullParser[Element] = XMLPullParser(["start", "end"])
        self._path: list[str] = []

    @property
    def fraction(self) -> float | None:
        """How much of it has been read, if its server said how long it is."""
        return self._received / self._length if self._length else None

    def batches(self) -> Iterator[list[Episode]]:
        """Give the episodes as they arrive."""
        try:
            while piece := self._response.read1(PIECE_BYTES):
                self._received += len(piece)
                if self._received > MOST_BYTES:
                    raise BadFeed(f"{self._url} is longer than {MOST_BYTES} bytes")
                self._parser.feed(piece)
                if episodes := list(self._episodes()):
                    yield episodes
            if self._length is not None and self._received < self._length:
                raise ConnectionError(f"{self._url} broke off after {self._received} of {self._length} bytes")
            self._parser.close()
            if episodes := list(self._episodes()):  # newer parsers put off what they were given last
                yield episodes
        except ParseError as error:
            raise BadFeed(f"{self._url} is not XML: {error}") from error

    def _episodes(self) -> Iterator[Episode]:
        """Read what the parser has understood so far."""
        for event, element in cast("Iterator[tuple[str, Element]]", self._parser.read_events()):
            if event == "start":
                self._path.append(element.tag)
                if self._path[0] != "rss":
                    raise BadFeed(f"{self._url} is not RSS: it begins with <{element.tag}>")
                continue
            if self._path == ["rss", "channel", "title"]:
                self.title = (element.text or "").strip()
            elif self._path == ["rss", "channel", "item"]:
                if (episode := episode_of(element)) is not None:
                    yield episode
                element.clear()
            self._path.pop()


def episode_of(item: Element) -> Episode | None:
    """Read one item; None if there is nothing to know it by."""
    enclosure = item.find("enclosure")
    audio_url = None if enclosure is None else enclosure.get("url")
    guid = text_of(item, "guid") or audio_url or text_of(item, "link")
    if guid is None:
        return None
    title = text_of(item, "title") or guid
    return Episode(guid=guid, title=title, audio_url=audio_url, published=text_of(item, "pubDate"))


def text_of(item: Element, tag: str) -> str | None:
    """The text of a child, None if it is missing or blank."""
    return (item.findtext(tag) or "").strip() or None
