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
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from duly.domain.passwords import matches, nobodys
from duly.tokens import PREFIX
from duly.web.errors import WebError
from duly.web.principal import Principal, Scope
from duly.web.rates import Rates, too_many
from duly.web.remembered import Remembered

if TYPE_CHECKING:
    from duly.web.asgi import Web

Auth = Callable[[Request], "Principal | Awaitable[Principal | None] | None"]
EVERYTHING: Final = frozenset({Scope.ADMIN})
SESSION_COOKIE: Final = "duly_session"
CSRF_COOKIE: Final = "duly_csrf"
SESSION: Final = timedelta(hours=12)
LONGEST_SECRET: Final = 1_000
TOKEN_SECONDS: Final = 2.0
"""How long it is remembered whom a token lets in: so long a revoked one may still work."""
PASSWORD_SECONDS: Final = 300.0
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


class Keeper:
    """Decides who somebody is."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._wrong = Rates(WRONG_RATE, WRONG_BURST)
        self._tokens: Remembered[Principal | None] = Remembered(TOKEN_SECONDS)
        self._passwords: Remembered[Principal] = Remembered(PASSWORD_SECONDS)
        self._right: Remembered[bool] = Remembered(PASSWORD_SECONDS)

    @property
    def has_login(self) -> bool:
        """Whether people can sign in on a page of ours: they cannot where the application lets them in."""
        return self._web.options.auth is None

    async def credential(self, request: Request) -> Credential | None:
        """Who sends this request; None: nobody that may. A wrong header is not made good by a cookie."""
        header = request.headers.get("authorization")
        if header is not None:
            return await self._by_header(request, header)
        session = request.cookies.get(session_cookie(request))
        if session is not None:
            principal = await self._stored(session)
            if principal is not None:
                return Credential(principal, "session", True, session)
        return await self._by_application(request)

    async def _by_header(self, request: Request, header: str) -> Credential | None:
        kind, _, value = header.partition(" ")
        value = value.strip()
        guessable = not value.startswith(PREFIX)  # of the tokens that we make, nobody guesses one
        if guessable and self._right.get(header, self._web.now()) is None:
            self.check_patience(request)
        found = None
        if kind.lower() == "bearer":
            principal = await self.by_token(value)
            found = None if principal is None else Credential(principal, "token", False)
        elif kind.lower() == "basic":
            principal = await self.by_password(*_name_and_password(value))
            found = None if principal is None else Credential(principal, "password", True, header)
        if found is not None:
            self._right.put(header, True, self._web.now())
        elif guessable:
            self.note_wrong(request)
        return found

    def check_patience(self, request: Request) -> None:
        """Refuse an address that has sent too many wrong credentials.

        Not what has been right lately: behind a proxy all have one address, and who guesses shall not lock others out.
        """
        wait = self._wrong.wait(_address(request), self._web.now())
        if wait > 0:
            raise too_many(wait)

    def note_wrong(self, request: Request) -> None:
        """Remember a wrong credential."""
        self._wrong.spend(_address(request), self._web.now())

    async def by_token(self, token: str) -> Principal | None:
        """Whom a token lets in: the one of the settings, or one that was made."""
        own = self._web.options.token
        if own and hmac.compare_digest(token.encode("utf-8", "replace"), own.encode()):
            return Principal("DULY_TOKEN", EVERYTHING)
        return await self._stored(token)

    async def _stored(self, secret: str) -> Principal | None:
        if not secret or len(secret) > LONGEST_SECRET:
            return None
        now = self._web.now()
        known = self._tokens.get(secret, now)
        if known is not None:
            return known[0]
        record = await self._web.call(self._web.jobs.token_holder, secret)
        principal = None if record is None else record.principal
        self._tokens.put(secret, principal, now)
        return principal

    async def by_password(self, name: str, password: str) -> Principal | None:
        """Who has a name and a password."""
        users = self._web.users
        if not users or len(password) > LONGEST_SECRET:
            return None
        now, key = self._web.now(), f"{name}:{password}"
        known = self._passwords.get(key, now)
        if known is not None:
            return known[0]
        user = users.get(name)
        right = await self._web.call(matches, password, nobodys() if user is None else user.hash)
        if user is None or not right:
            return None
        self._passwords.put(key, user.principal, now)
        return user.principal

    def forget(self) -> None:
        """Look everything up again: a session has ended, or a token was revoked."""
        self._tokens.clear()

    async def _by_application(self, request: Request) -> Credential | None:
        if self._web.options.auth is None:
            return None
        answer = self._web.options.auth(request)
        principal = await answer if inspect.isawaitable(answer) else answer
        if principal is None:
            return None
        secret = request.cookies.get(CSRF_COOKIE)
        if not secret:
            secret = secrets.token_urlsafe(32)
            add_cookie(request, CSRF_COOKIE, secret)
        return Credential(principal, "application", True, secret)

    async def begin_session(self, request: Request, principal: Principal) -> None:
        """Have the answer set the cookie of a new session."""
        made = await self._web.call(self._web.jobs.create_session, principal, SESSION)
        add_cookie(request, session_cookie(request), made.secret, seconds=int(SESSION.total_seconds()))

    async def end_session(self, request: Request) -> None:
        """End the session of a request, everywhere."""
        session = request.cookies.get(session_cookie(request), "")
        record = await self._web.call(self._web.jobs.token_holder, session)
        if record is not None:
            await self._web.call(self._web.jobs.revoke_token, record.id)
        self.forget()
        add_cookie(request, session_cookie(request), "", seconds=0)

    def unauthorized(self) -> WebError:
        """The answer to somebody whom nobody knows."""
        schemes = 'Bearer realm="duly"' + (', Basic realm="duly"' if self._web.users else "")
        return WebError(
            401,
            "unauthorized",
            "you must say who you are",
            "send a token: Authorization: Bearer ...",
            headers={"www-authenticate": schemes},
        )


def session_cookie(request: Request) -> str:
    """The name of the cookie: with the port, as browsers send the cookies of one port of a host to all its others."""
    _, colon, port = request.headers.get("host", "").rpartition(":")
    return f"{SESSION_COOKIE}_{port}" if colon and port.isdecimal() else SESSION_COOKIE


def add_cookie(request: Request, name: str, value: str, *, seconds: int | None = None) -> None:
    """Have the answer set a cookie that scripts cannot read and other sites cannot send."""
    from duly.web.guard import prefix_of

    parts = [f"{name}={value}", f"Path={prefix_of(request) or '/'}", "HttpOnly", "SameSite=Strict"]
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    if request.url.scheme == "https":
        parts.append("Secure")
    request.scope.setdefault("duly.cookies", []).append("; ".join(parts))


def _address(request: Request) -> str:
    return request.client.host if request.client else "?"


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
        return self._keys.pop(hashlib.sha256(key.encode("utf-8", "replace")).hexdigest(), None)
