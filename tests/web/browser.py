"""Sends requests to the web side of a `Duly`, with whichever headers a test wants."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from starlette.applications import Starlette

from duly import Duly
from duly.web import create_app

HOST = "duly.test"
TOKEN = "the token of the settings"


class Browser:
    """A client of one application. Requests carry no credential unless they are given one."""

    def __init__(self, app: Any, prefix: str = "", token: str | None = None) -> None:
        self.app = app
        self.prefix = prefix
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.address = ("10.0.0.1", 1234)

    def send(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Send one request, and do not follow where it leads."""

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=self.address, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                headers = {**self.headers, **given.pop("headers", {})}
                return await client.request(method, self.prefix + path, headers=headers, **given)

        return asyncio.run(go())

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.send("GET", path, **({"params": params} if params else {}))

    def post(self, path: str, body: Any = None) -> httpx.Response:
        return self.send("POST", path, json=body) if body is not None else self.send("POST", path)

    def put(self, path: str, body: Any) -> httpx.Response:
        return self.send("PUT", path, json=body)

    def delete(self, path: str) -> httpx.Response:
        return self.send("DELETE", path)

    def ok(self, response: httpx.Response, status: int = 200) -> Any:
        """The body of a response that must have succeeded."""
        assert response.status_code == status, response.text
        return response.json()

    def with_token(self, token: str | None) -> Browser:
        """The same application, with another credential."""
        return Browser(self.app, self.prefix, token)


def browse(jobs: Duly, **options: Any) -> Browser:
    """An application that may do everything with a token."""
    return Browser(serve(jobs, **options), token=TOKEN)


def serve(jobs: Duly, **options: Any) -> Starlette:
    """The application of a `Duly`, for the host of the tests."""
    return create_app(jobs, **{"hosts": [HOST], "token": TOKEN, "rate": 1e6, "burst": 1_000_000, **options})


def error_of(response: httpx.Response) -> tuple[int, str]:
    """The status and code of an error, in the one shape that errors have."""
    body = response.json()
    assert set(body) == {"error"}
    assert {"code", "message"} <= set(body["error"]) <= {"code", "message", "hint"}
    assert all(isinstance(each, str) and each for each in body["error"].values())
    return response.status_code, body["error"]["code"]
