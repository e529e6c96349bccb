"""How the web side behaves: what `create_app` was given, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from duly.web.auth import Auth

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the web side behaves."""

    auth: Auth | None = None
    hosts: tuple[str, ...] = LOOPBACK
    """The names under which it answers, without the port. `*.example.com`: any below; `*`: any at all."""
    read_only: bool = False
    token: str | None = field(default=None, repr=False)
    """A bearer token that may do everything: `$DULY_TOKEN`."""
    users: tuple[str, ...] = field(default=(), repr=False)
    """Who may sign in by password: `NAME:SCOPES[@TENANT]:HASH`."""
    redact: tuple[str, ...] = ()
    """The names of fields whose values are never shown."""
    max_body: int = MIB
    rate: float = 50.0
    """How many requests a second each principal may make for long."""
    burst: int = 200
    """How many at once."""
