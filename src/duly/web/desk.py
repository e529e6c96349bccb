"""The desk: a `Duly` as one principal may see and touch it. Every verb of `duly.web.service` takes one.

A verb is a plain function over a desk that returns plain data. `@verb(scope)` checks what its caller may do, refuses
changes in read-only mode, and says who acts, so that neither the API nor a page can forget it:

    @verb(Scope.OPERATE)
    def cancel(desk: Desk, job_id: str, reason: str = "cancelled") -> dict[str, Any]: ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from duly.app import Duly
from duly.web.errors import forbidden
from duly.web.principal import Principal, Scope
from duly.web.redact import NOTHING_HIDDEN, Redaction

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Desk:
    """A `Duly` as one principal may see and touch it."""

    jobs: Duly
    principal: Principal
    read_only: bool = False
    redaction: Redaction = NOTHING_HIDDEN

    @property
    def tenant(self) -> str | None:
        """The only tenant whose things may be seen; None: all."""
        return self.principal.tenant

    def may(self, scope: Scope) -> bool:
        """Whether its principal may do what needs this scope here; for pages that show only what can be done."""
        return self.principal.may(scope) and (scope is Scope.READ or not self.read_only)

    def need(self, scope: Scope) -> None:
        """Refuse what the principal may not do."""
        if not self.principal.may(scope):
            raise forbidden(f"this needs the scope {scope}", "ask for a token that has it: duly tokens create --help")
        if self.read_only and scope is not Scope.READ:
            raise forbidden("this is read-only", "it was started with --read-only")

    def need_everyone(self) -> None:
        """Refuse somebody who is bound to a tenant: this is about all of them."""
        if self.tenant is not None:
            raise forbidden("this is about every tenant, and you are bound to one")

    def sees(self, tenant: str | None) -> bool:
        """Whether things of this tenant may be seen."""
        return self.tenant is None or (tenant or "") == self.tenant


class Verb(Generic[P, R]):
    """A function over a desk, with what it takes to call it."""

    def __init__(self, function: Callable[Concatenate[Desk, P], R], scope: Scope, everyone: bool) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.scope = scope
        self.everyone = everyone

    def __call__(self, desk: Desk, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it, if they may, in their name."""
        desk.need(self.scope)
        if self.everyone:
            desk.need_everyone()
        with desk.jobs.acting_as(desk.principal.name, via="api"):
            return self.function(desk, *args, **kwargs)


def verb(scope: Scope, *, everyone: bool = False) -> Callable[[Callable[Concatenate[Desk, P], R]], Verb[P, R]]:
    """Make a function a verb. `everyone`: it is about all tenants, so nobody who is bound to one may."""
    return lambda function: Verb(function, scope, everyone)


_THREADS = 16
_limiter: RunVar[CapacityLimiter] = RunVar("duly_web_threads")  # one for each event loop


async def on_thread(function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Call what asks the database on a thread: the store is synchronous, and must not hold up the loop.

    The threads are counted apart from those of the application in which we are mounted.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    return await to_thread.run_sync(functools.partial(function, *args, **kwargs), limiter=limiter)
