"""The door: method x Origin x Host x credential x scope, default deny, every cell as it is written here."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from duly import Duly
from duly.domain.passwords import hash_password
from duly.web import Principal, create_app
from duly.web.api.routes import ROWS
from duly.web.api.table import Row
from tests.web.browser import HOST, TOKEN, Browser, browse, error_of, serve

pytestmark = pytest.mark.requirement("S1", "S2", "S11")

PASSWORD = "correct horse"
HASH = hash_password(PASSWORD)
UNSAFE = ("POST", "PUT", "DELETE", "PATCH")
# What a browser or a program says about where a request comes from: None of it, the same origin, another.
ORIGINS: dict[str, dict[str, str]] = {
    "none": {},
    "same": {"origin": f"http://{HOST}"},
    "same by fetch": {"sec-fetch-site": "same-origin"},
    "same by both": {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"},
    "other": {"origin": "https://evil.test"},
    "other port": {"origin": f"http://{HOST}:81"},
    "null": {"origin": "null"},
    "garbage": {"origin": "http://[::1"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site"},
    "same origin said cross-site": {"origin": f"http://{HOST}", "sec-fetch-site": "cross-site"},
}
SAME = {"same", "same by fetch", "same by both"}
HOSTS = {HOST: True, f"{HOST}:8000": True, HOST.upper(): True, "localhost": True, "127.0.0.1:80": True,
         "evil.test": False, f"{HOST}.evil.test": False, "": False, "a b": False}  # fmt: skip


class Who:
    """Somebody who sends requests: their headers, and whether their browser sends the credential by itself."""

    def __init__(self, headers: dict[str, str], *, ambient: bool, csrf: str = "") -> None:
        self.headers = headers
        self.ambient = ambient
        self.csrf = csrf


@pytest.fixture
def app(lite: Duly) -> Starlette:
    return serve(lite, users=[f"ann:admin:{HASH}"])


def as_session(app: Starlette, lite: Duly) -> Who:
    from datetime import timedelta

    from duly.web.auth import Credential

    principal = Principal.make("bob", ["admin"])
    secret = lite.create_session(principal, timedelta(hours=1)).secret
    return Who(
        {"cookie": f"duly_session={secret}"},
        ambient=True,
        csrf=Credential(principal, "session", True, secret).csrf_token,
    )


def as_user(app: Starlette, lite: Duly) -> Who:
    from duly.web.auth import Credential

    header = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    return Who(
        {"authorization": header},
        ambient=True,
        csrf=Credential(Principal.make("ann"), "password", True, header).csrf_token,
    )


def as_token(app: Starlette, lite: Duly) -> Who:
    return Who({"authorization": f"Bearer {TOKEN}"}, ambient=False)


def as_stored(app: Starlette, lite: Duly) -> Who:
    secret = lite.create_token("ci", ["admin"]).secret
    return Who({"authorization": f"Bearer {secret}"}, ambient=False)


KNOWN = (as_session, as_user, as_token, as_stored)


@pytest.mark.parametrize("method", UNSAFE)
@pytest.mark.parametrize("who", KNOWN)
def test_changes_come_from_here_or_not_at_all(app: Starlette, lite: Duly, who: Any, method: str) -> None:
    """Every origin, with the CSRF token, without, and with a wrong one."""
    somebody, browser = who(app, lite), Browser(app)
    for name, csrf in itertools.product(ORIGINS, ("right", "none", "wrong")):
        token = {"right": {"x-csrf-token": somebody.csrf}, "none": {}, "wrong": {"x-csrf-token": "0" * 64}}[csrf]
        headers = {**somebody.headers, **ORIGINS[name], **token}
        if method == "PUT":
            answer = browser.send("PUT", "/api/admin/queues/default", json={"fair": True}, headers=headers)
        elif method == "POST":
            answer = browser.send("POST", "/api/admin/queues/default/resume", headers=headers)
        elif method == "DELETE":
            answer = browser.send("DELETE", "/api/admin/jobs/0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12", headers=headers)
        else:
            answer = browser.send("PATCH", "/api/admin/queues/default", headers=headers)
        allowed = name in SAME and csrf == "right" if somebody.ambient else name in {*SAME, "none"}
        passed = {"PUT": 200, "POST": 200, "DELETE": 404, "PATCH": 405}[method]
        assert answer.status_code == (passed if allowed else 403), (name, csrf, answer.text)


@pytest.mark.parametrize("who", KNOWN)
def test_looking_needs_no_origin(app: Starlette, lite: Duly, who: Any) -> None:
    somebody, browser = who(app, lite), Browser(app)
    for headers in ORIGINS.values():
        answer = browser.send("GET", "/api/admin/jobs", headers={**somebody.headers, **headers})
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/healthz", "/api/admin/jobs", "/login", "/static/duly.css"])
def test_it_answers_for_its_own_names_only(lite_api: Browser, host: str, path: str) -> None:
    answer = lite_api.send("GET", path, headers={"host": host})
    if HOSTS[host]:
        assert answer.status_code == 200
    else:
        assert error_of(answer) == (421, "unknown_host")


def test_names_below_a_star_are_ours_and_the_star_alone_is_any(lite: Duly) -> None:
    below = browse(lite, hosts=["*.shop.test"])
    assert below.send("GET", "/healthz", headers={"host": "jobs.shop.test"}).status_code == 200
    for host in ("shop.test", "evilshop.test", "shop.test.evil"):
        assert below.send("GET", "/healthz", headers={"host": host}).status_code == 421
    assert browse(lite, hosts=["*"]).send("GET", "/healthz", headers={"host": "any.test"}).status_code == 200


WRONG: dict[str, dict[str, str]] = {
    "nothing": {},
    "empty bearer": {"authorization": "Bearer "},
    "wrong bearer": {"authorization": "Bearer wrong"},
    "part of the token": {"authorization": f"Bearer {TOKEN[:-1]}"},
    "wrong scheme": {"authorization": f"Token {TOKEN}"},
    "wrong password": {"authorization": "Basic " + base64.b64encode(b"ann:wrong").decode()},
    "wrong name": {"authorization": "Basic " + base64.b64encode(f"bob:{PASSWORD}".encode()).decode()},
    "no base64": {"authorization": "Basic %%%"},
    "wrong session": {"cookie": "duly_session=wrong"},
    "token as a cookie": {"cookie": f"duly_session={TOKEN}"},
    "long": {"authorization": "Bearer " + "x" * 5_000},
}


def paths(row: Row) -> str:
    return row.path.replace("{id}", "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12").replace("{name}", "default")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
def test_no_endpoint_is_open(lite: Duly, row: Row) -> None:
    """For every row of the table, and every wrong credential; with the origin right, so that only that is wrong."""
    app = serve(lite, users=[f"ann:admin:{HASH}"])
    for name, headers in WRONG.items():
        browser = Browser(app)
        browser.address = (f"10.1.0.{list(WRONG).index(name)}", 1)  # each has their own patience
        answer = browser.send(row.method, paths(row), headers={**ORIGINS["same by both"], **headers})
        assert error_of(answer) == (401, "unauthorized"), name
        assert "Bearer" in answer.headers["www-authenticate"]


def test_what_is_open_names_nothing(lite: Duly) -> None:
    browser = Browser(serve(lite))
    assert browser.get("/healthz").json() == {"ok": True}
    assert browser.get("/login").status_code == 200
    for path in (
        "/",
        "/jobs",
        "/api/openapi.json",
        "/nothing",
        "/metrics",
        "/api",
        "/docs",
        "//",
        "/static/../asgi.py",
    ):
        assert browser.get(path).status_code in (401, 404), path
    assert browser.get("/static/../asgi.py").status_code != 200
    assert browser.send("OPTIONS", "/api/admin/jobs", headers={"origin": "https://evil.test"}).status_code == 405


SCOPES = ("read", "enqueue", "operate", "admin")
BRINGS = {
    "read": {"read"},
    "enqueue": {"enqueue"},
    "operate": {"read", "enqueue", "operate"},
    "admin": set(SCOPES),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_each_scope_opens_what_it_should_and_no_more(lite: Duly, scope: str) -> None:
    """For every row of the table: 403 without the scope, anything else with it."""
    browser = browse(lite).with_token(lite.create_token("somebody", [scope]).secret)
    for row in ROWS:
        answer = browser.send(row.method, paths(row), json={} if row.body is not None else None)
        allowed = str(row.verb.scope) in BRINGS[scope]
        assert (answer.status_code != 403) == allowed, (row.method, row.path, answer.text)
        assert answer.status_code < 500
        if not allowed:
            assert error_of(answer) == (403, "forbidden")


def test_the_rows_that_change_something_are_not_for_who_may_only_read() -> None:
    for row in ROWS:
        assert (row.method == "GET") == (
            row.verb.scope == "read" or (row.path == "/api/admin/tokens" and row.method == "GET")
        )


def test_read_only_refuses_every_change_of_whoever(lite: Duly) -> None:
    browser = browse(lite, read_only=True)
    before = lite.audit()
    for row in ROWS:
        answer = browser.send(row.method, paths(row), json={} if row.body is not None else None)
        if row.verb.scope == "read":
            assert answer.status_code in (200, 400, 404)
        else:
            assert error_of(answer) == (403, "forbidden")
    assert lite.audit() == before


def test_getting_changes_nothing(lite: Duly) -> None:
    """Whatever is asked for by GET or HEAD, the tables stay as they are."""
    from tests.store.raw import Raw

    browser, raw = browse(lite), Raw(lite.settings.url)
    job = lite["add"].enqueue(1)
    tables = [
        str(row[0])
        for row in raw.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'duly%' ORDER BY name")
    ]

    def contents() -> list[Any]:
        return [raw.rows(f"SELECT * FROM {table}") for table in tables]

    before = contents()
    for row in ROWS:
        path = paths(row).replace("0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12", job.id)
        browser.get(path)
        browser.send("HEAD", path)
    assert contents() == before
    raw.close()


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S3")
@pytest.mark.parametrize(
    "path", ["/healthz", "/login", "/api/admin/jobs", "/api/openapi.json", "/nothing", "/static/x"]
)
def test_every_answer_has_the_headers(lite_api: Browser, path: str) -> None:
    headers = lite_api.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] in ("no-store", "no-cache")
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.requirement("S3")
def test_markup_in_names_comes_back_as_json_only(lite: Duly, lite_api: Browser) -> None:
    payload = "</script><script>alert(1)</script>"
    lite["send"].using(tenant=payload, tags=[payload]).enqueue(payload)
    answer = lite_api.get("/api/admin/jobs")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["items"][0]["tenant"] == payload
    refused = lite_api.get(f"/api/admin/queues/{payload.replace('/', '%2F')}")
    assert refused.headers["content-type"] == "application/json"


# -- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S9")
def test_a_body_that_is_too_large_is_refused_before_it_is_read(lite: Duly) -> None:
    browser = browse(lite, max_body=1_000)
    assert error_of(browser.send("POST", "/api/jobs", content=b"x" * 1_001)) == (413, "too_large")

    async def chunks() -> Any:
        for _ in range(100):
            yield b"x" * 100

    assert error_of(browser.send("POST", "/api/jobs", content=chunks())) == (413, "too_large")
    anonymous = Browser(browser.app)
    assert error_of(anonymous.send("POST", "/api/jobs", content=b"x" * 1_001)) == (413, "too_large")


@pytest.mark.requirement("S9")
def test_a_body_that_does_not_come_is_not_waited_for(lite: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from duly.web import guard

    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)

    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(30)
        yield b"}"

    assert error_of(browse(lite).send("POST", "/api/jobs", content=slow())) == (408, "too_slow")


@pytest.mark.requirement("S9")
def test_each_principal_may_ask_so_often(lite: Duly) -> None:
    browser = browse(lite, rate=0.001, burst=3)
    assert [browser.get("/api/admin/me").status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = browser.get("/api/admin/me")
    assert error_of(refused) == (429, "too_many")
    assert int(refused.headers["retry-after"]) > 100
    other = browser.with_token(lite.create_token("other").secret)
    assert other.get("/api/admin/me").status_code == 200


@pytest.mark.requirement("S11")
def test_who_guesses_is_stopped_and_others_are_not(lite: Duly) -> None:
    app = serve(lite)
    guesser, friend = Browser(app, token="guess"), Browser(app, token=TOKEN)
    friend.address = ("10.0.0.2", 1)
    answers = [guesser.get("/api/admin/me").status_code for _ in range(12)]
    assert answers == [401] * 10 + [429] * 2
    assert guesser.with_token(TOKEN).get("/api/admin/me").status_code == 429
    assert friend.get("/api/admin/me").status_code == 200
    # Behind a proxy they have one address: what was right lately stays so, and of our own tokens nobody guesses one.
    assert guesser.with_token(TOKEN).get("/api/admin/me").status_code == 200
    assert guesser.with_token(lite.create_token("ci").secret).get("/api/admin/me").status_code == 200
    assert guesser.with_token("duly_wrong").get("/api/admin/me").status_code == 401
    assert guesser.get("/api/admin/me").status_code == 429


# -- sessions ---------------------------------------------------------------------------------------------------------


def cookie_of(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("prefix", ["", "/ops/duly"])
def test_a_link_lets_in_once(lite: Duly, prefix: str) -> None:
    inner = serve(lite)
    key = inner.state.web.links.make(Principal.make("ann", ["operate"]))
    app: Any = inner
    if prefix:
        app = Starlette()
        app.mount(prefix, inner)
    browser = Browser(app, prefix)
    head = browser.send("HEAD", f"/open?key={key}")
    assert head.status_code == 401
    answer = browser.get(f"/open?key={key}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{prefix}/")
    words = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", f"Path={prefix or '/'}"} <= set(words)
    assert error_of(browser.get(f"/open?key={key}")) == (401, "unauthorized")
    browser.headers["cookie"] = cookie_of(answer)
    me = browser.ok(browser.get("/api/admin/me"))
    assert (me["name"], me["scopes"]) == ("ann", ["read", "enqueue", "operate"])


def test_signing_in_by_a_form_and_out_again(lite: Duly) -> None:
    app = serve(lite, users=[f"ann:read+enqueue@acme:{HASH}"])
    browser = Browser(app)
    page = browser.send("GET", "/jobs?state=failed", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/jobs%3Fstate%3Dfailed")
    same = {"origin": f"http://{HOST}"}
    form = {"name": "ann", "password": PASSWORD, "next": "/jobs?state=failed"}
    assert browser.send("POST", "/login", data=form).status_code == 403  # it says not where it comes from
    assert browser.send("POST", "/login", data={**form, "password": "x"}, headers=same).status_code == 401
    answer = browser.send("POST", "/login", data=form, headers=same)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?state=failed")
    browser.headers["cookie"] = cookie_of(answer)
    me = browser.ok(browser.get("/api/admin/me"))
    assert me == {"name": "ann", "scopes": ["read", "enqueue"], "tenant": "acme", "read_only": False}
    assert browser.send("POST", "/logout", headers=same).status_code == 403  # without the CSRF token
    csrf = as_session_csrf(browser.headers["cookie"])
    assert browser.send("POST", "/logout", data={"csrf_token": csrf}, headers=same).status_code == 303
    assert browser.get("/api/admin/me").status_code == 401
    assert lite.tokens() == []


def as_session_csrf(cookie: str) -> str:
    from duly.web.auth import Credential

    return Credential(Principal.make("x"), "session", True, cookie.partition("=")[2]).csrf_token


@pytest.mark.parametrize(
    "path", ["//evil.test", "https://evil.test", "/\\evil.test", "javascript:alert(1)", "", "/\n/x"]
)
def test_signing_in_leads_to_no_other_site(lite: Duly, path: str) -> None:
    browser = Browser(serve(lite))
    form = {"password": TOKEN, "next": path}
    answer = browser.send("POST", "/login", data=form, headers={"origin": f"http://{HOST}"})
    assert answer.headers["location"] == "/"


def test_the_cookie_is_secure_where_the_connection_is(lite: Duly) -> None:
    import asyncio

    app = serve(lite)
    key = app.state.web.links.make(Principal.make("ann"))

    async def go() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"https://{HOST}") as client:
            return await client.get(f"/open?key={key}")

    assert "Secure" in asyncio.run(go()).headers["set-cookie"].split("; ")


def test_a_session_and_a_token_end_when_they_expire_or_are_revoked(lite: Duly) -> None:
    app = serve(lite)
    web = app.state.web
    clock = [0.0]
    web.now = lambda: clock[0]
    short = lite.create_token("short", expires=0.05)
    long = lite.create_token("long", expires="1h")
    browser = Browser(app)
    assert browser.with_token(long.secret).get("/api/admin/me").status_code == 200
    lite.revoke_token(long.id)
    clock[0] += 2.5  # what is remembered is forgotten
    assert browser.with_token(long.secret).get("/api/admin/me").status_code == 401
    from tests.helpers import eventually

    def refused() -> bool:
        clock[0] += 2.5
        return browser.with_token(short.secret).get("/api/admin/me").status_code == 401

    assert eventually(refused)


# -- the application's own ---------------------------------------------------------------------------------------------


def mounted(lite: Duly, auth: Any) -> Browser:
    host = Starlette()
    host.mount("/jobs", create_app(lite, auth=auth, hosts=[HOST], rate=1e6, burst=10_000))
    return Browser(host, "/jobs")


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_the_application_says_who_somebody_is(lite: Duly, kind: str) -> None:
    def plain(request: Request) -> Principal | None:
        name = request.cookies.get("user")
        return Principal.make(name, ["operate"], tenant="acme") if name else None

    async def coroutine(request: Request) -> Principal | None:
        return plain(request)

    browser = mounted(lite, plain if kind == "plain" else coroutine)
    assert error_of(browser.get("/api/admin/me")) == (401, "unauthorized")
    assert browser.send("GET", "/", headers={"accept": "text/html"}).status_code == 401  # no login of ours
    assert browser.get("/login").status_code == 404
    me = browser.send("GET", "/api/admin/me", headers={"cookie": "user=eve"})
    assert (me.json()["name"], me.json()["tenant"]) == ("eve", "acme")
    csrf_cookie = cookie_of(me)
    assert csrf_cookie.startswith("duly_csrf=")
    token = as_session_csrf(csrf_cookie)
    headers = {"cookie": f"user=eve; {csrf_cookie}", "origin": f"http://{HOST}"}
    body = {"task": "add", "args": {"x": 1}}
    assert browser.send("POST", "/api/jobs", json=body, headers=headers).status_code == 403
    made = browser.send("POST", "/api/jobs", json=body, headers={**headers, "x-csrf-token": token})
    assert (made.status_code, made.json()["tenant"], made.json()["enqueued_by"]) == (201, "acme", "eve")


def test_an_application_that_fails_lets_nobody_in(lite: Duly) -> None:
    def broken(request: Request) -> Principal | None:
        raise KeyError("session")

    assert error_of(mounted(lite, broken).get("/api/admin/me")) == (500, "internal")


def test_a_wrong_header_is_not_made_good_by_the_application(lite: Duly) -> None:
    browser = mounted(lite, lambda request: Principal.make("anybody", ["admin"]))
    answer = browser.send("GET", "/api/admin/me", headers={"authorization": "Bearer wrong"})
    assert error_of(answer) == (401, "unauthorized")


def test_websockets_are_closed(lite: Duly) -> None:
    import asyncio

    sent: list[Any] = []

    async def go() -> None:
        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "websocket", "path": "/", "headers": [], "query_string": b"", "subprotocols": []}
        await serve(lite)(scope, receive, send)

    asyncio.run(go())
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DULY_TOKEN", raising=False)
