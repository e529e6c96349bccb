"""Which jobs a list or a bulk verb is about, as the desk's principal may see them; and the marks between pages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from duly.domain.clock import to_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import InvalidOption
from duly.domain.names import check_text
from duly.domain.records import Cursor, Filter
from duly.domain.states import State
from duly.web.desk import Desk
from duly.web.errors import invalid

LOOK: Final = 50_000
"""At so many jobs that fit the other filters a search for text looks at most."""
WALK: Final = 100_000
"""So many jobs it passes at most to find those."""
LOOK_FEW: Final = 20_000
"""At so many jobs a page looks at most where few are wanted by anything else."""
LOOK_TO_COUNT: Final = 10_000
"""At so many jobs that ended in each way it looks at most, to count those of one tenant."""
MOST_PAGE: Final = 1_000
MOST_OFFSET: Final = 100_000
LONGEST_TEXT: Final = 1_000
_CURSOR = re.compile(r"(?:(\d{1,18})\.)?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What somebody asks for, in their words."""

    state: str | None = None
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    tag: str | None = None
    text: str | None = None
    since: str | None = None
    until: str | None = None

    @property
    def anything(self) -> bool:
        """Whether it narrows anything down."""
        return any(getattr(self, name) not in (None, "") for name in self.__slots__)

    def filter(self, desk: Desk, *, limit: int, offset: int = 0, cursor: str | None = None) -> Filter | None:
        """What the store is asked for. None: what they ask for is another tenant's, so there is nothing."""
        if not 0 < limit <= MOST_PAGE:
            raise invalid(f"limit must be 1 to {MOST_PAGE}, not {limit}")
        if not 0 <= offset <= MOST_OFFSET:
            raise invalid(f"offset must be 0 to {MOST_OFFSET}, not {offset}", "use the cursor to go further")
        if cursor and offset:
            raise invalid("give cursor or offset, not both")
        if desk.tenant is not None and self.tenant not in (None, "", desk.tenant):
            return None
        now = desk.jobs.store.now_us() if self.since or self.until else 0
        wanted = Filter(
            state=State.parse(self.state) if self.state else None,
            task=_checked("task", self.task),
            queue=_checked("queue", self.queue),
            tenant=desk.tenant if desk.tenant is not None else _checked("tenant", self.tenant),
            tag=_checked("tag", self.tag),
            text=_checked("text", self.text),
            since_us=_moment("since", self.since, now),
            until_us=_moment("until", self.until, now),
            limit=limit,
            offset=offset,
            look=LOOK if self.text else LOOK_FEW,
            walk=WALK,
        )
        at = read_cursor(cursor)
        return wanted if at is None else replace(wanted, before_at=at.at, before_id=at.id)


def _checked(name: str, value: str | None) -> str | None:
    return check_text(value, name, LONGEST_TEXT) if value else None


def _moment(name: str, value: str | None, now: int) -> int | None:
    """Read a time (ISO 8601; without a zone it is UTC), or how long ago it was ("2h")."""
    return None if not value else moment_us(name, value, now)


def moment_us(name: str, value: str, now: int) -> int:
    """Read a time (ISO 8601; without a zone it is UTC), or how long ago it was ("2h"), in microseconds."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        try:
            return max(0, now - micros(to_timedelta(value, name)))
        except InvalidOption:
            raise invalid(
                f"{name} must be a time like 2030-01-31T08:00:00Z, or how long ago, like 2h; not {value[:100]!r}"
            ) from None
    return max(0, to_us(at if at.tzinfo is not None else at.replace(tzinfo=UTC), name))


def moment(name: str, value: str, now: int) -> datetime:
    """The same as a moment."""
    from duly.domain.clock import from_us

    return from_us(moment_us(name, value, now))


def write_cursor(cursor: Cursor | None) -> str | None:
    """A mark between two pages as text."""
    if cursor is None:
        return None
    return cursor.id if cursor.at is None else f"{cursor.at}.{cursor.id}"


def read_cursor(text: str | None) -> Cursor | None:
    """A mark between two pages, as `write_cursor` wrote it."""
    if not text:
        return None
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise invalid("cursor must be what next_cursor of the page before was", "leave it out for the first page")
    return Cursor(None if found[1] is None else int(found[1]), found[2])
