"""Lets people in: by a token, a name and a password, a session, or as the application says. Everyone else stays out."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from duly.web.errors import WebError
from duly.web.principal import Principal, Scope
from duly.web.rates import Rates, too_many

if TYPE_CHECKING:
    from duly.web.asgi import Web

Auth = Callable[[Request], "Principal | None | Awaitable[Principal | None]"]
EVERYTHING: Final = frozenset({Scope.ADMIN})
SESSION_COOKIE: Final = "duly_session"
CSRF_COOKIE: Final = "duly_csrf"
WRONG_BURST, WRONG_RATE = 10, 1 / 6
"""How many wrong credentials an address may send at once, and how many a second after that."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Who came, and by what.

    `ambient`: the browser sends it by itself, so the request may not be its user's wish: it needs a CSRF token, which
    is made from `secret`.
    """

    principal: Principal
    kind: str
    ambient: bool
    secret: str = ""

    @property
    def csrf_token(self) -> str:
        """What a form or a script of ours must send along with every change."""
        return hmac.new(self.secret.encode(), b"duly csrf", hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell."""
    return hmac.compare_digest(one.encode(), other.encode())


class Keeper:
    """Decides who somebody is."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._wrong = Rates(WRONG_RATE, WRONG_BURST)

    @property
    def has_login(self) -> bool:
        """Whether people can sign in on a page of ours: they cannot where the application lets them in."""
        return self._web.options.auth is None

    async def credential(self, request: Request) -> Credential | None:
        """Who sends this request; None: nobody that may."""
        header = request.headers.get("authorization")
        if header is not None:
            return await self._by_header(request, header)
        session = request.cookies.get(SESSION_COOKIE)
        if session is not None:
            found = await self._by_session(session)
            if found is not None:
                return found
        return await self._by_application(request)

    async def _by_header(self, request: Request, header: str) -> Credential | None:
        address = request.client.host if request.client else "?"
        wait = self._wrong.wait(address, self._web.now())
        if wait > 0:
            raise too_many(wait)
        kind, _, value = header.partition(" ")
        value = value.strip()
        found = None
        if kind.lower() == "bearer":
            principal = await self.by_token(value)
            found = None if principal is None else Credential(principal, "token", False)
        elif kind.lower() == "basic":
            principal = self.by_password(*_name_and_password(value))
            found = None if principal is None else Credential(principal, "password", True, header)
        if found is None:
            self._wrong.spend(address, self._web.now())
        return found

    async def by_token(self, token: str) -> Principal | None:
        """Who holds a token."""
        own = self._web.options.token
        if own and same(token, own):
            return Principal("DULY_TOKEN", EVERYTHING)
        return None

    def by_password(self, name: str, password: str) -> Principal | None:
        """Who has a name and a password."""
        return None

    async def _by_session(self, session: str) -> Credential | None:
        principal = self._web.sessions.get(session)
        return None if principal is None else Credential(principal, "session", True, session)

    async def _by_application(self, request: Request) -> Credential | None:
        if self._web.options.auth is None:
            return None
        answer = self._web.options.auth(request)
        principal = await answer if inspect.isawaitable(answer) else answer
        if principal is None:
            return None
        secret = request.cookies.get(CSRF_COOKIE) or self._give_csrf_cookie(request)
        return Credential(principal, "application", True, secret)

    def _give_csrf_cookie(self, request: Request) -> str:
        secret = secrets.token_urlsafe(32)
        add_cookie(request, CSRF_COOKIE, secret)
        return secret

    def unauthorized(self) -> WebError:
        """The answer to somebody whom nobody knows."""
        schemes = 'Bearer realm="duly"' + (', Basic realm="duly"' if self._web.options.users else "")
        return WebError(
            401,
            "unauthorized",
            "you must say who you are",
            "send a token: Authorization: Bearer ...",
            headers={"www-authenticate": schemes},
        )


def add_cookie(request: Request, name: str, value: str, *, seconds: int | None = None) -> None:
    """Have the answer set a cookie that scripts cannot read and other sites cannot send."""
    from duly.web.guard import prefix_of

    parts = [f"{name}={value}", f"Path={prefix_of(request) or '/'}", "HttpOnly", "SameSite=Strict"]
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    if request.url.scheme == "https":
        parts.append("Secure")
    request.scope.setdefault("duly.cookies", []).append("; ".join(parts))


def _name_and_password(value: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return name, password


class Links:
    """Links that let somebody in once. Made by the program that prints them."""

    def __init__(self) -> None:
        self._keys: dict[str, Principal] = {}

    def make(self, principal: Principal) -> str:
        """Return the key of a new link: /open?key=..."""
        key = secrets.token_urlsafe(32)
        self._keys[hashlib.sha256(key.encode()).hexdigest()] = principal
        return key

    def take(self, key: str) -> Principal | None:
        """Whom a link lets in; from then on nobody."""
        return self._keys.pop(hashlib.sha256(key.encode()).hexdigest(), None)
