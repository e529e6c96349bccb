"""Time zones: from instants to wall-clock readings and back, gaps and overlaps included.

Instants and readings are whole seconds since 1970. The standard library knows the offset of every reading, twice:
`fold=0` and `fold=1` differ where clocks were moved, and by comparing the two all else follows.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from duly.domain.errors import InvalidSchedule
from duly.domain.text import safe_repr
from duly.schedule.cron import DAY

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

FIRST: Final = -62_135_424_000
"""The third of January of the year 1: so far in from what a datetime can hold that any offset and midnight fits."""
LAST: Final = 253_401_955_200
"""The 28th of December 9999. There are no ticks beyond."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Zone:
    """A time zone other than UTC, which needs none of this."""

    __slots__ = ("_epoch", "_zone")

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._epoch = datetime(1970, 1, 1, tzinfo=zone)

    def read(self, instant: int) -> tuple[int, int]:
        """Return what the wall clock shows at `instant`, and 1 if it has shown that before, else 0."""
        moment = (_EPOCH + timedelta(seconds=instant)).astimezone(self._zone)
        return instant + _offset(moment), moment.fold

    def instants(self, reading: int) -> tuple[int, int]:
        """Return when the clock shows `reading`: equal instants; if it does so twice, the first and the second.

        In a gap, where it never does, the two are swapped: the first is after the gap, the second before it.
        """
        moment = self._epoch + timedelta(seconds=reading)
        return reading - _offset(moment), reading - _offset(moment.replace(fold=1))

    def overlap(self, reading: int) -> tuple[int, int]:
        """Return the readings that are repeated around `reading`, from the first up to (not including) the second."""
        first, second = self.instants(reading)
        turn = self.turn(first, second)
        return turn + reading - second, turn + reading - first

    def turn(self, before: int, after: int) -> int:
        """Return the instant between the two at which the clock is moved, or `after` if it is not."""
        old = self.read(before)[0] - before
        while after - before > 1:
            middle = (before + after) // 2
            if self.read(middle)[0] - middle == old:
                before = middle
            else:
                after = middle
        return after


def end_of_day(zone: Zone | None, instant: int) -> tuple[int, int]:
    """Return the local day of `instant`, in days since 1970, and the instant up to which it lasts at least.

    It is cut short where the clock is moved: after that it may show another day, even the one before.
    """
    reading = instant if zone is None else zone.read(instant)[0]
    end = instant + DAY - reading % DAY
    if zone is not None and zone.read(end)[0] - end != reading - instant:
        end = zone.turn(instant, end)
    return reading // DAY, end


def start_of_day(zone: Zone | None, instant: int) -> tuple[int, int]:
    """Return the local day of `instant`, in days since 1970, and an instant since which it has lasted."""
    reading = instant if zone is None else zone.read(instant)[0]
    start = instant - reading % DAY
    if zone is not None and zone.read(start)[0] - start != reading - instant:
        start = zone.turn(start, instant)
    return reading // DAY, start


def _offset(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


@lru_cache(maxsize=1024)
def find_zone(name: str) -> Zone | None:
    """Return the zone of this IANA name, None for UTC; refuse an unknown name and suggest a known one."""
    if name == "UTC":
        return None
    from zoneinfo import ZoneInfo

    try:
        if name.startswith(("posix/", "right/")) or name in ("localtime", "posixrules"):
            raise ValueError(name)  # there on some machines, and not the same on all
        return Zone(ZoneInfo(name))
    except (LookupError, OSError, ValueError, TypeError):
        raise _unknown(name) from None


def _unknown(name: str) -> InvalidSchedule:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    known = {zone.lower(): zone for zone in available_timezones()}
    if not known:
        return InvalidSchedule(
            f"The time zone {safe_repr(name)} cannot be looked up: this machine has no time zone database. "
            "Install one with `pip install tzdata`.",
            text=name,
            option="timezone",
        )
    wanted = name.lower().replace(" ", "_")
    if wanted in known:
        close = [wanted]
    else:
        endings = sorted(zone for zone in known if wanted and zone.endswith(f"/{wanted}"))
        close = (endings or get_close_matches(wanted, sorted(known), n=3))[:3]
    hint = f"did you mean {' or '.join(known[zone] for zone in close)}?" if close else "write it as in Europe/Berlin."
    return InvalidSchedule(f"There is no time zone {safe_repr(name)}: {hint}", text=name, option="timezone")
