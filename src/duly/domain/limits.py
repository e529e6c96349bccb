"""Limits: how many may run at once, how many may start in a time; read from what people write, and reckoned with.

A rate is a bucket: it holds `burst` starts and fills at `n` per `per_us`. What has been taken from it is one instant,
the time at which it will be full again. So in any stretch of w seconds at most burst + n * w / per_us start. A quota
(no burst) is a number for each minute or day of the clock, in UTC.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from duly.domain.clock import from_us
from duly.domain.durations import UnreadableDuration, human, micros, parse_duration, to_timedelta
from duly.domain.errors import InvalidOption
from duly.domain.text import safe_repr

SCOPES = ("queue", "task", "tenant")
BITS = {"task": 1, "queue": 2, "tenant": 4}
"""How a run is marked that counts under a limit of this scope."""
QUOTAS = {"minute": 60_000_000, "day": 86_400_000_000}
MOST = 1_000_000_000
LATE_US = 30_000
"""How long after its claim a run under a rate may start; later it is given back, and what it took of the rate too."""
_RATE = re.compile(r"\s*([0-9][0-9_]*)\s*/\s*(\S+)\s*")

Gate = tuple[str, str]
"""A gate by its scope and name."""
Bound = tuple[Gate, ...]
"""The limits that bind a lane, in the order in which all hold them; none for most lanes."""


class Rate(NamedTuple):
    """So many starts in so long."""

    n: int
    per_us: int
    burst: int | None = None
    """How many the bucket holds; None for a number per minute or day of the clock."""

    @classmethod
    def of(cls, value: object, what: str = "rate", *, burst: int | None = None) -> Rate:
        """Read "100/s", "5/10s", "1000/h", or (100, timedelta(seconds=1)).

        Without a burst: as many as come in a tenth of a second, at least one.
        """
        match value:
            case Rate():
                rate = value
            case str():
                rate = cls._parse(value, what)
            case (int() as n, (timedelta() | int() | float() | str()) as per):
                rate = cls(n, micros(to_timedelta(per, what)))
            case _:
                raise InvalidOption(f"{what} must be text like '100/s' or '5/10s', not {safe_repr(value)}")
        if not 0 < rate.n <= MOST or rate.per_us <= 0:
            raise InvalidOption(f"{what} must let at least one start in some time, and {safe_repr(value)} does not")
        if burst is None:
            burst = rate.burst or max(1, rate.n * 100_000 // rate.per_us)
        return rate._replace(burst=whole(burst, "burst", least=1))

    @classmethod
    def _parse(cls, text: str, what: str) -> Rate:
        found = _RATE.fullmatch(text)
        if found is not None:
            per = found[2] if found[2][0].isdigit() else f"1{found[2]}"
            try:
                return cls(int(found[1].replace("_", "")), micros(parse_duration(per)))
            except (UnreadableDuration, OverflowError):
                pass
        raise InvalidOption(
            f"{what} must be a number per time, like '100/s', '5/10s' or '1000/h', not {safe_repr(text)}"
        )

    def __str__(self) -> str:
        per = human(timedelta(microseconds=self.per_us))
        return f"{self.n}/{per[1:] if re.fullmatch('1[a-z]+', per) else per}"

    def room(self, spent_until: int, used: int, now: int) -> int:
        """How many may start now."""
        if self.burst is None:
            return self.n - (used if spent_until == self.window(now) else 0)
        return self.at_once - -(-max(spent_until - now, 0) * self.n // self.per_us)

    def opens_at(self, spent_until: int, used: int, now: int) -> int:
        """When the next may start."""
        if self.room(spent_until, used, now) > 0:
            return now
        if self.burst is None:
            return self.window(now) + self.per_us
        return spent_until - (self.at_once - 1) * self.per_us // self.n

    @property
    def at_once(self) -> int:
        """How many may be claimed at once: less than the burst by what may come while a claim becomes a start.

        Where that is less than a tenth of a start it is nothing.
        """
        tenths = 10 * self.n * LATE_US - self.per_us
        return max(1, (self.burst or 1) - max(0, -(-tenths // (10 * self.per_us))))

    def window(self, now: int) -> int:
        """When the minute or day that we are in began."""
        return now - now % self.per_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Stops the jobs of a key whose runs mostly fail, tries one after a while, and goes on when it succeeds.

    It opens when of at least `least` runs within `window` the part `rate` failed; then for `cooldown`, twice as long
    each time a trial fails, an hour at most.
    """

    rate: float = 0.5
    least: int = 10
    window: timedelta | float | str = timedelta(minutes=1)
    cooldown: timedelta | float | str = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if type(self.rate) not in (int, float) or not 0 < self.rate <= 1:
            raise InvalidOption(f"breaker rate must be a number above 0 and up to 1, not {safe_repr(self.rate)}")
        whole(self.least, "breaker least", least=1)
        for name in ("window", "cooldown"):
            if to_timedelta(getattr(self, name), f"breaker {name}") <= timedelta(0):
                raise InvalidOption(f"breaker {name} must be longer than nothing")

    @property
    def window_us(self) -> int:
        """The window in microseconds."""
        return micros(to_timedelta(self.window, "breaker window"))

    @property
    def cooldown_us(self) -> int:
        """The first cooldown in microseconds."""
        return micros(to_timedelta(self.cooldown, "breaker cooldown"))

    def to_data(self) -> str:
        """As stored."""
        return json.dumps([self.rate, self.least, self.window_us, self.cooldown_us])


class Says(NamedTuple):
    """What a gate says, whoever said it."""

    slots: int | None = None
    rate_n: int | None = None
    rate_us: int | None = None
    burst: int | None = None
    most_waiting: int | None = None
    refuses: bool = False
    breaker: str | None = None
    meters_keys: bool = False

    @classmethod
    def limits(cls, slots: int | None, rate: Rate | None, breaker: Breaker | None = None) -> Says:
        """The limits of a queue, task or tenant, or of each key of a group."""
        n, per_us, burst = (None, None, None) if rate is None else rate
        return cls(slots, n, per_us, burst, breaker=None if breaker is None else breaker.to_data())

    @property
    def rate(self) -> Rate | None:
        """Its rate."""
        if self.rate_n is None or self.rate_us is None:
            return None
        return Rate(self.rate_n, self.rate_us, self.burst)

    @property
    def nothing(self) -> bool:
        """Whether it says nothing at all."""
        return self == NOTHING


NOTHING = Says()


class Limit(NamedTuple):
    """A gate with what it says and where it stands."""

    scope: str
    name: str
    says: Says
    by_hand: bool
    stamped: bool
    spent_until: int
    used: int
    blocked_until: int | None
    blocked_reason: str | None
    paused_at: int | None
    paused_until: int | None
    limited_at: int | None

    @property
    def gate(self) -> Gate:
        """Its scope and name."""
        return self.scope, self.name

    def to_dict(self) -> dict[str, object]:
        """As plain values, for JSON."""
        says = self.says
        return {
            "scope": self.scope,
            "name": self.name,
            "concurrency": says.slots,
            "rate": None if says.rate is None else str(says.rate),
            "burst": says.burst,
            "most_waiting": says.most_waiting,
            "refuses": says.refuses,
            "by_hand": self.by_hand,
            "blocked_until": None if self.blocked_until is None else from_us(self.blocked_until).isoformat(),
            "blocked_reason": self.blocked_reason,
        }

    @property
    def binds_claims(self) -> bool:
        """Whether a claim must hold it: it has slots or a rate, or meters the keys of its jobs."""
        if self.scope == "keys":
            return False
        return (
            self.says.slots is not None
            or self.says.meters_keys
            or (self.says.rate_n is not None and not self.says.refuses)
        )


def whole(value: object, what: str, *, least: int) -> int:
    """Return `value` if it is a whole number from `least` on."""
    if type(value) is not int or not least <= value <= MOST:
        raise InvalidOption(f"{what} must be a whole number from {least} on, not {safe_repr(value)}")
    return value
