"""Stands before every request: Host, size, who it is, where it comes from, how often; and before every answer: headers.

In this order, and what fails first is the answer: 421 a Host that is not ours; 413 a body that is too large, 408 one
that does not come; 429 too many wrong credentials, or too many requests; 401 nobody was let in; 403 a change that comes
from another site, or without a CSRF token where one is needed. Scopes are checked by the verbs (`duly.web.desk`).
"""

from __future__ import annotations

import hmac
import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote, urlsplit

from anyio import move_on_after
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly.domain.errors import DulyError
from duly.web.auth import Credential
from duly.web.errors import WebError, forbidden, told

if TYPE_CHECKING:
    from duly.web.asgi import Web

log = logging.getLogger("duly.web")
SAFE: Final = frozenset({"GET", "HEAD"})
METHODS: Final = SAFE | {"POST", "PUT", "DELETE", "PATCH"}
OPEN: Final = ("/healthz", "/login", "/open")
"""What is answered without a credential, beside /static/: none of these shows anything."""
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with that, browsers send forms of ours with the origin "null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
BODY_SECONDS: Final = 30.0
FORM: Final = "application/x-www-form-urlencoded"
CREDENTIAL: Final = "duly.credential"
BODY: Final = "duly.body"


class Guard:
    """The one door to everything below it."""

    def __init__(self, app: ASGIApp, web: Web) -> None:
        self._app = app
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        scope["duly.prefix"] = scope.get("root_path", "")
        request = Request(scope, receive)
        sending = _Sending(send, request)
        try:
            replay = await self._admit(request)
            await self._app(scope, replay, sending)
        except WebError as error:
            await self._answer(request, error)(scope, receive, sending)
        except DulyError as error:
            log.info("%s %s: %s", request.method, path_of(request), error)
            await told(error).response()(scope, receive, sending)
        except Exception:
            log.exception("%s %s", request.method, path_of(request))
            if sending.started:
                raise
            await WebError(500, "internal", "something went wrong here", "see the log").response()(
                scope, receive, sending
            )

    async def _admit(self, request: Request) -> Receive:
        if request.method not in METHODS:
            raise WebError(405, "method_not_allowed", f"there is no {request.method[:20]} here")
        self._check_host(request)
        body = await _read(request, self._web.options.max_body)
        request.scope[BODY] = body
        path = path_of(request)
        if path.startswith("/static/") or path == "/healthz":
            return _replaying(body, request.receive)
        credential = await self._web.keeper.credential(request)
        request.scope[CREDENTIAL] = credential
        if path not in OPEN:
            if credential is None:
                raise self._web.keeper.unauthorized()
            self._web.rates.spend(credential.principal.name, self._web.now())
        if request.method not in SAFE:
            _check_origin(request, ambient=credential is None or credential.ambient)
            if credential is not None and credential.ambient and path not in OPEN:
                _check_csrf(request, credential, body)
        return _replaying(body, request.receive)

    def _check_host(self, request: Request) -> None:
        given = request.headers.getlist("host")
        host = _without_port(given[0]) if len(given) == 1 else ""
        if not host or not any(_matches(host, allowed.lower()) for allowed in self._web.options.hosts):
            raise WebError(
                421,
                "unknown_host",
                f"this server does not answer for the host {host!r}",
                "allow it: hosts=[...], web_hosts in the settings, or --allow-host",
            )

    def _answer(self, request: Request, error: WebError) -> Response:
        """Show people the way in; tell programs what is wrong."""
        wants_page = request.method in SAFE and "text/html" in request.headers.get("accept", "")
        path = path_of(request)
        if error.status == 401 and wants_page and not path.startswith("/api/") and self._web.keeper.has_login:
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"{prefix_of(request)}/login?next={quote(path + query)}", 303)
        return error.response()


# -- what a request says ----------------------------------------------------------------------------------------------


def prefix_of(request: Request) -> str:
    """Where we are mounted: "" or "/duly". Every link on a page begins with it."""
    return str(request.scope.get("duly.prefix", request.scope.get("root_path", ""))).rstrip("/")


def path_of(request: Request) -> str:
    """The path below our mount."""
    path = str(request.scope["path"])
    prefix = prefix_of(request)
    below = path == prefix or path.startswith(f"{prefix}/")
    return (path[len(prefix) :] or "/") if prefix and below else path


def _without_port(host: str) -> str:
    name, colon, port = host.strip().lower().rpartition(":")
    if colon and port.isdecimal():
        host = name
    return host.strip().lower().rstrip(".")


def _matches(host: str, allowed: str) -> bool:
    return allowed == "*" or host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:]))


def _check_origin(request: Request, *, ambient: bool) -> None:
    """Refuse a change that a page of another site asks for. A program that is no browser says nothing of it."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        raise forbidden(f"a change must come from a page of this server, not {site}")
    if origin is not None:
        if not _is_here(origin, request.headers.get("host", "")):
            raise forbidden("a change must come from a page of this server, and its Origin is another")
    elif ambient and site != "same-origin":
        raise forbidden(
            "a change with a cookie or a password must say where it comes from: Origin or Sec-Fetch-Site is missing",
            "programs send a bearer token instead",
        )


def _is_here(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.strip().lower()


def _check_csrf(request: Request, credential: Credential, body: bytes) -> None:
    given = request.headers.get("x-csrf-token")
    if given is None and request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
        given = (read_form(body).get("csrf_token") or [""])[0]
    if not given or not hmac.compare_digest(given.encode(), credential.csrf_token.encode()):
        raise forbidden("the CSRF token is missing or not the one of this session", "load the page again")


def read_form(body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form."""
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=1_000)
    except ValueError:
        raise WebError(400, "invalid", "the form cannot be read") from None


async def form_of(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form that was posted."""
    return read_form(request.scope[BODY])


async def _read(request: Request, most: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    if request.method in SAFE and declared == "0" and "transfer-encoding" not in request.headers:
        return b""
    body = bytearray()
    with move_on_after(BODY_SECONDS) as time:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise _too_large(most)
    if time.cancelled_caught:
        raise WebError(
            408, "too_slow", f"the body did not come within {BODY_SECONDS:g} s", headers={"connection": "close"}
        )
    return bytes(body)


def _too_large(most: int) -> WebError:
    return WebError(413, "too_large", f"the body is larger than {most} bytes", headers={"connection": "close"})


def _replaying(body: bytes, receive: Receive) -> Receive:
    """What gives the body that was read already, and after that what comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class _Sending:
    """Adds the headers that every answer has."""

    def __init__(self, send: Send, request: Request) -> None:
        self._send = send
        self._request = request
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(raw=list(message["headers"]))
            for name, value in HEADERS.items():
                if name not in headers or name != "cache-control":
                    headers[name] = value
            if path_of(self._request).startswith("/static/"):
                headers["cache-control"] = "no-cache"
            for cookie in self._request.scope.get("duly.cookies", ()):
                headers.append("set-cookie", cookie)
            message = {**message, "headers": headers.raw}
        await self._send(message)
