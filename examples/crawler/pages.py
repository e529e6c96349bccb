"""The pages that are known: every statement on the application's own table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from .database import query

# What the sweep enqueues again. A page whose first crawl failed for good has no `crawled_at`, and is tried again too.
STALE = "SELECT url FROM pages WHERE gone_at IS NULL AND COALESCE(crawled_at, found_at) < :before"


def add(connection: Any, urls: Iterable[str]) -> list[str]:
    """Put pages into the list. Returns those that nobody knew."""
    now, new = datetime.now(UTC), "INSERT INTO pages (url, found_at) VALUES (:url, :now) ON CONFLICT DO NOTHING"
    # In one order, so that two who add the same pages at the same moment do not each wait for the other.
    return [url for url in sorted(set(urls)) if query(connection, f"{new} RETURNING url", url=url, now=now)]


def crawled(connection: Any, url: str, title: str) -> None:
    """Write down that a page was crawled."""
    done = "UPDATE pages SET title = :title, crawled_at = :now, gone_at = NULL WHERE url = :url"
    query(connection, done, url=url, title=title, now=datetime.now(UTC))


def gone(connection: Any, url: str) -> None:
    """Write down that there is no such page any more."""
    query(connection, "UPDATE pages SET gone_at = :now WHERE url = :url", url=url, now=datetime.now(UTC))


def everything(connection: Any) -> list[dict[str, Any]]:
    """Every page, as it is shown."""
    rows = query(connection, "SELECT url, title, found_at, crawled_at, gone_at FROM pages ORDER BY url")
    return [
        dict(zip(("url", "title", "found_at", "crawled_at", "gone_at"), map(shown, row), strict=True)) for row in rows
    ]


def shown(value: object) -> object:
    """A value as JSON has it."""
    return value.isoformat(sep=" ") if isinstance(value, datetime) else value
