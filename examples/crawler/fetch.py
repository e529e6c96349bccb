"""Fetches a page with the standard library, and finds its title and its links."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from urllib.error import HTTPError
from urllib.parse import quote, urldefrag, urljoin, urlsplit
from urllib.request import Request, urlopen

SILENCE_SECONDS = 15.0
MOST_BYTES = 8 * 1024 * 1024
POLITE_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(days=1)


class Gone(Exception):
    """There is no such page, and asking again will not change that."""


class TooMany(Exception):
    """The host asks to be left alone for a while: 429."""

    def __init__(self, wait: timedelta) -> None:
        super().__init__("429 Too Many Requests")
        self.wait = wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What was found at an address."""

    title: str
    links: tuple[str, ...]


def address(url: str) -> str:
    """An address as it is fetched and known: without its fragment, and spaces and the like encoded."""
    if urlsplit(url).scheme in ("http", "https") and host_of(url):
        return quote(urldefrag(url).url, safe="%/:=&?~+!$,;'@()*[]")
    raise ValueError(f"{url!r} is not a web address: it must start with http:// or https://")


def host_of(url: str) -> str:
    """The host, with its port: who is to be treated politely."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def fetch(url: str) -> Page:
    """Ask for a page."""
    try:
        with urlopen(Request(url, headers={"User-Agent": "duly-crawler"}), timeout=SILENCE_SECONDS) as answer:
            if answer.headers.get_content_type() != "text/html":
                return Page(title="", links=())
            return parse(answer.read(MOST_BYTES).decode("utf-8", "replace"), base=answer.url, host=host_of(url))
    except HTTPError as error:
        with error:
            if error.code == 429:
                raise TooMany(wait_of(error.headers)) from error
            if error.code in (404, 410):
                raise Gone(f"{url} answered {error.code} {error.reason}") from error
            raise


def wait_of(headers: Message) -> timedelta:
    """How long Retry-After asks to wait: it holds seconds, or a date."""
    text = headers.get("Retry-After", "")
    try:
        wait = timedelta(seconds=int(text)) if text.isdecimal() else parsedate_to_datetime(text) - datetime.now(UTC)
    except (ValueError, TypeError, OverflowError):
        wait = POLITE_WAIT
    return min(max(wait, timedelta(seconds=1)), LONGEST_WAIT)


def parse(html: str, *, base: str, host: str) -> Page:
    """Find the title, and the links to pages of one host."""
    parser = Links()
    parser.feed(html)
    parser.close()
    links = dict.fromkeys(link for href in parser.links if (link := link_to(href, base)) and host_of(link) == host)
    return Page(title=" ".join(parser.title.split()), links=tuple(links))


def link_to(href: str, base: str) -> str | None:
    """Where a link leads; None if that is no page."""
    try:
        return address(urljoin(base, href.strip()))
    except ValueError:  # mailto: and the like, or nonsense
        return None


class Links(HTMLParser):
    """Reads HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.title = ""
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep where an anchor leads."""
        self._in_title = tag == "title" and not self.title
        if tag == "a" and (href := dict(attrs).get("href")):
            self.links.append(href)

    def handle_endtag(self, tag: str) -> None:
        """A title has ended, if anything has."""
        self._in_title = False

    def handle_data(self, data: str) -> None:
        """Keep the title."""
        if self._in_title:
            self.title += data
