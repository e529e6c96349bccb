"""Retry policies, and the decision what happens to a job after a run that failed.

All of it is pure: values in, values out. A policy is stored with its job as data (`to_data`), so that a
process that does not know the task can still rescue the job; what only code can say (exception classes, a
function) stays in the process that has the code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal, TypeAlias, assert_never

from duly.domain.durations import LONGEST, micros, to_timedelta
from duly.domain.errors import InvalidOption
from duly.domain.states import State
from duly.domain.text import safe_repr

Duration: TypeAlias = timedelta | int | float | str
Exceptions: TypeAlias = type[BaseException] | Iterable[type[BaseException]]
DelayFunction: TypeAlias = Callable[[int, BaseException | None], timedelta | float | None]
Random: TypeAlias = Callable[[], float]
Kind: TypeAlias = Literal["exponential", "linear", "delays"]

DEFAULT_MAX_ATTEMPTS: Final = 5
MOST_ATTEMPTS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often a failed job runs again, and how long it waits before. Made by the constructors below.

    `max_attempts` counts runs: 5 means five runs, so four retries; `max_retries=4` says the same.
    `jitter` spreads a delay by that fraction up and down, after the cap.
    `give_up_on` ends the job at once on those exceptions; `retry_on`, if given, ends it on all others.
    """

    kind: Kind
    steps: tuple[timedelta, ...]
    factor: float = 1.0
    cap: timedelta = LONGEST
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    jitter: float = 0.0
    retry_on: tuple[type[BaseException], ...] = ()
    give_up_on: tuple[type[BaseException], ...] = ()
    function: DelayFunction | None = None

    def __post_init__(self) -> None:
        _check_whole(self.max_attempts, "max_attempts", 1, MOST_ATTEMPTS)
        _check_real(self.factor, "factor", 0.001, 1000.0)
        _check_real(self.jitter, "jitter", 0.0, 1.0)

    @classmethod
    def exponential(
        cls,
        base: Duration = 1,
        *,
        factor: float = 2.0,
        cap: Duration | None = 60,
        max_attempts: int | None = None,
        max_retries: int | None = None,
        jitter: float = 0.0,
        retry_on: Exceptions = (),
        give_up_on: Exceptions = (),
    ) -> Backoff:
        """Wait `base` (1 s), then `factor` times as long after every further run, up to `cap` (60 s)."""
        return cls(
            kind="exponential",
            steps=(to_timedelta(base, "base"),),
            factor=factor,
            cap=_cap(cap),
            max_attempts=_runs(max_attempts, max_retries, DEFAULT_MAX_ATTEMPTS),
            jitter=jitter,
            retry_on=_classes(retry_on, "retry_on"),
            give_up_on=_classes(give_up_on, "give_up_on"),
        )

    @classmethod
    def patient(
        cls,
        *,
        max_attempts: int | None = None,
        max_retries: int | None = None,
        retry_on: Exceptions = (),
        give_up_on: Exceptions = (),
    ) -> Backoff:
        """Wait 1 minute, doubling up to 24 hours, each spread by 20 % up and down; 3 retries unless told."""
        return cls.exponential(
            timedelta(minutes=1),
            cap=timedelta(hours=24),
            max_attempts=_runs(max_attempts, max_retries, 4),
            jitter=0.2,
            retry_on=retry_on,
            give_up_on=give_up_on,
        )

    @classmethod
    def fixed(
        cls,
        delay: Duration,
        *,
        max_attempts: int | None = None,
        max_retries: int | None = None,
        jitter: float = 0.0,
        retry_on: Exceptions = (),
        give_up_on: Exceptions = (),
    ) -> Backoff:
        """Wait the same every time."""
        return cls(
            kind="delays",
            steps=(to_timedelta(delay, "delay"),),
            max_attempts=_runs(max_attempts, max_retries, DEFAULT_MAX_ATTEMPTS),
            jitter=jitter,
            retry_on=_classes(retry_on, "retry_on"),
            give_up_on=_classes(give_up_on, "give_up_on"),
        )

    @classmethod
    def linear(
        cls,
        step: Duration,
        *,
        cap: Duration | None = None,
        max_attempts: int | None = None,
        max_retries: int | None = None,
        jitter: float = 0.0,
        retry_on: Exceptions = (),
        give_up_on: Exceptions = (),
    ) -> Backoff:
        """Wait `step`, then twice, three times ... as long, up to `cap`."""
        return cls(
            kind="linear",
            steps=(to_timedelta(step, "step"),),
            cap=_cap(cap),
            max_attempts=_runs(max_attempts, max_retries, DEFAULT_MAX_ATTEMPTS),
            jitter=jitter,
            retry_on=_classes(retry_on, "retry_on"),
            give_up_on=_classes(give_up_on, "give_up_on"),
        )

    @classmethod
    def delays(
        cls,
        delays: Iterable[Duration],
        *,
        max_attempts: int | None = None,
        max_retries: int | None = None,
        jitter: float = 0.0,
        retry_on: Exceptions = (),
        give_up_on: Exceptions = (),
    ) -> Backoff:
        """Wait each delay in turn; the last repeats if `max_attempts` allows more runs than the list has."""
        if isinstance(delays, str):
            raise InvalidOption(f"delays must be a list of durations, not the text {safe_repr(delays)}.")
        steps = tuple(to_timedelta(delay, f"delays[{index}]") for index, delay in enumerate(delays))
        if not steps:
            raise InvalidOption("delays must hold at least one duration; Backoff.none() never retries.")
        return cls(
            kind="delays",
            steps=steps,
            max_attempts=_runs(max_attempts, max_retries, len(steps) + 1),
            jitter=jitter,
            retry_on=_classes(retry_on, "retry_on"),
            give_up_on=_classes(give_up_on, "give_up_on"),
        )

    @classmethod
    def custom(
        cls,
        function: DelayFunction,
        *,
        fallback: Backoff | None = None,
        max_attempts: int | None = None,
        max_retries: int | None = None,
    ) -> Backoff:
        """Ask `function(attempts, exception)` for the delay; None gives up.

        A function cannot be stored: where it is not known, or raises, `fallback` decides (else `DEFAULT`).
        Its `retry_on` and `give_up_on` are asked before the function; `max_attempts` is its own unless given.
        """
        if not callable(function):
            raise InvalidOption(f"custom needs a function, not {type(function).__name__}.")
        base = DEFAULT if fallback is None else fallback
        runs = _runs(max_attempts, max_retries, base.max_attempts)
        return replace(base, function=function, max_attempts=runs)

    @classmethod
    def none(cls) -> Backoff:
        """Run once, never again."""
        return cls(kind="delays", steps=(timedelta(0),), max_attempts=1)

    @classmethod
    def from_data(cls, text: str | None, max_attempts: int) -> Backoff:
        """Return the policy stored by `to_data`. What cannot be read becomes `DEFAULT`; nothing is raised."""
        if text:
            try:
                return _read(json.loads(text), min(max(max_attempts, 1), MOST_ATTEMPTS))
            except (InvalidOption, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
                pass  # a job must never be stuck because its policy is not understood
        return DEFAULT.with_max_attempts(max_attempts)

    def to_data(self) -> str:
        """Return the policy as compact JSON, without code or `max_attempts` (a column of its own)."""
        data: dict[str, object] = {"kind": self.kind, "us": [micros(step) for step in self.steps]}
        if self.factor != 1.0:
            data["factor"] = self.factor
        if self.cap != LONGEST:
            data["cap_us"] = micros(self.cap)
        if self.jitter:
            data["jitter"] = self.jitter
        return json.dumps(data, separators=(",", ":"))

    def with_max_attempts(self, max_attempts: int) -> Backoff:
        """Return the same policy for another number of runs; a stored one beyond what is sensible is cut."""
        runs = min(max(max_attempts, 1), MOST_ATTEMPTS)
        return self if runs == self.max_attempts else replace(self, max_attempts=runs)

    def delay(self, attempts: int, random: Random) -> timedelta:
        """Return how long to wait after `attempts` runs; a custom policy's function is not asked."""
        delay_us: float = min(self._bare_delay_us(max(attempts, 1)), micros(self.cap))
        if self.jitter:
            delay_us *= 1.0 + self.jitter * (2.0 * random() - 1.0)
        return timedelta(microseconds=round(delay_us))

    def _bare_delay_us(self, run: int) -> float:
        match self.kind:
            case "exponential":
                return micros(self.steps[0]) * _power(self.factor, run - 1)
            case "linear":
                return micros(self.steps[0]) * run
            case "delays":
                return micros(self.steps[min(run, len(self.steps)) - 1])
            case _:
                assert_never(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows a failed run: a retry after `delay`, or, where that is None, the end, and why."""

    delay: timedelta | None
    reason: str = ""

    @property
    def retry(self) -> bool:
        """Whether the job runs again."""
        return self.delay is not None


def after_failure(policy: Backoff, *, attempt: int, exc: BaseException | None, random: Random) -> Decision:
    """Decide what follows the failed run number `attempt`. `exc` is None where only the crash is known."""
    if exc is not None:
        name = type(exc).__name__
        if isinstance(exc, policy.give_up_on):
            return Decision(delay=None, reason=f"{name} is in give_up_on")
        if policy.retry_on and not isinstance(exc, policy.retry_on):
            return Decision(delay=None, reason=f"{name} is not in retry_on")
    if not can_retry(State.FAILED, attempt, policy.max_attempts):
        return Decision(delay=None, reason=f"attempts used up ({attempt} of {policy.max_attempts})")
    if policy.function is None:
        return Decision(delay=policy.delay(attempt, random))
    return _ask(policy.function, policy, attempt, exc, random)


def check_retry(policy: object) -> Backoff:
    """Return `policy` if it is one."""
    if not isinstance(policy, Backoff):
        raise InvalidOption(f"retry must be a Backoff, such as Backoff.exponential(), not {safe_repr(policy)}.")
    return policy


def can_retry(state: State, attempts: int, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> bool:
    """Whether a job in `state` that ran `attempts` times may run again."""
    return state not in (State.SUCCEEDED, State.RUNNING) and attempts < max_attempts


def _ask(function: DelayFunction, policy: Backoff, attempt: int, exc: BaseException | None, random: Random) -> Decision:
    try:
        answer = function(attempt, exc)
        if answer is None:
            return Decision(delay=None, reason="policy gave up")
        return Decision(delay=to_timedelta(answer, "the retry policy's delay"))
    except (Exception, SystemExit) as error:  # the user's code: its fault must not cost the job its retry
        reason = f"policy raised {type(error).__name__}, fallback used"
        return Decision(delay=policy.delay(attempt, random), reason=reason)


def _power(factor: float, exponent: int) -> float:
    try:
        # Not infinity: a base of zero times infinity is no number.
        return min(math.pow(factor, exponent), 1e30)
    except OverflowError:
        return 1e30


def _read(data: dict[str, object], max_attempts: int) -> Backoff:
    """Return the policy that decoded `to_data` describes, or raise."""
    kind, steps, cap = data["kind"], data["us"], data.get("cap_us", micros(LONGEST))
    factor, jitter = data.get("factor", 1.0), data.get("jitter", 0.0)
    if kind not in ("exponential", "linear", "delays") or not isinstance(steps, list) or not steps:
        raise InvalidOption(f"unknown retry policy {kind!r}")
    if not isinstance(factor, (int, float)) or not isinstance(jitter, (int, float)):
        raise InvalidOption("factor and jitter must be numbers")
    return Backoff(
        kind=kind,
        steps=tuple(_stored_duration(step) for step in steps),
        factor=factor,
        cap=_stored_duration(cap),
        max_attempts=max_attempts,
        jitter=jitter,
    )


def _stored_duration(us: object) -> timedelta:
    if not isinstance(us, int):
        raise InvalidOption("a stored duration must be whole microseconds")
    return to_timedelta(timedelta(microseconds=us), "stored duration")


def _runs(max_attempts: int | None, max_retries: int | None, default: int) -> int:
    if max_retries is None:
        return default if max_attempts is None else max_attempts
    if max_attempts is not None:
        raise InvalidOption(
            f"Give max_attempts={safe_repr(max_attempts)} or max_retries={safe_repr(max_retries)}, not both: "
            "max_retries n is max_attempts n + 1."
        )
    return _check_whole(max_retries, "max_retries", 0, MOST_ATTEMPTS - 1) + 1


def _cap(cap: Duration | None) -> timedelta:
    return LONGEST if cap is None else to_timedelta(cap, "cap")


def _classes(exceptions: Exceptions, what: str) -> tuple[type[BaseException], ...]:
    classes = (exceptions,) if isinstance(exceptions, type) else tuple(exceptions)
    for one in classes:
        _check_exception(one, what)
    return classes


def _check_exception(value: object, what: str) -> None:
    if not (isinstance(value, type) and issubclass(value, BaseException)):
        raise InvalidOption(f"{what} must hold exception classes, and {safe_repr(value)} is none.")


def _check_whole(value: object, what: str, lowest: int, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise InvalidOption(f"{what} must be a whole number from {lowest} to {highest}, not {safe_repr(value)}.")
    return value


def _check_real(value: object, what: str, lowest: float, highest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value <= highest:
        raise InvalidOption(f"{what} must be a number from {lowest} to {highest}, not {safe_repr(value)}.")


DEFAULT: Final = Backoff.exponential(jitter=0.1)
"""The policy of a task that names none: 1 s, doubling up to 60 s, spread by 10 %, five runs."""
