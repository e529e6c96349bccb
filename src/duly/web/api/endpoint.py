"""Answers a request by its row: reads and checks what was given, calls the verb on a thread, writes the answer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from duly.domain.errors import ArgumentError
from duly.domain.json import decode_strict
from duly.web.api.openapi import document
from duly.web.api.routes import ROWS
from duly.web.api.schema import Schema, check
from duly.web.api.table import Row
from duly.web.asgi import web_of
from duly.web.errors import WebError, invalid, missing
from duly.web.guard import BODY, prefix_of


def routes() -> list[BaseRoute]:
    """The routes of the API: one per path, those without parameters first."""
    by_path: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in ROWS:
        by_path[row.path][row.method] = row
    paths = sorted(by_path, key=lambda path: (path.count("{"), path))
    made: list[BaseRoute] = [Route("/api/openapi.json", _document, methods=["GET"])]
    return made + [Route(_pattern(path), _endpoint(by_path[path]), methods=list(by_path[path])) for path in paths]


def _pattern(path: str) -> str:
    """A path as Starlette matches it: an id is a UUID, so that /jobs/stats is none."""
    return path.replace("{id}", "{id:uuid}")


async def _document(request: Request) -> Response:
    return JSONResponse(document(prefix_of(request)))


def _endpoint(rows: dict[str, Row]) -> Any:
    async def endpoint(request: Request) -> Response:
        row = rows["GET" if request.method == "HEAD" else request.method]
        web = web_of(request)
        desk = web.desk(request)
        desk.need(row.verb.scope)  # before the request is read: who may not, learns nothing from what is wrong in it
        named = {**_query(row, request), **_body(row, request)}
        given = row.gather(named) if row.gather else named
        path = [_path(row, name, value) for name, value in request.path_params.items()]
        answer = await web.call(row.verb, desk, *row.fixed, *path, **given)
        return JSONResponse(answer, row.status)

    return endpoint


def _path(row: Row, name: str, value: object) -> str:
    schema = row.path_schemas.get(name)
    if schema is None or not isinstance(value, str):
        return str(value)  # an id: whether there is such a thing is for the verb to say
    try:
        return str(check(schema, value, name))
    except WebError:
        raise missing(f"there is no {name} {value[:100]!r}") from None


def _query(row: Row, request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name in dict.fromkeys(request.query_params):
        if name not in row.query:
            raise invalid(f"there is no parameter {name[:100]!r}", f"known: {', '.join(row.query) or 'none'}")
        schema, values = row.query[name], request.query_params.getlist(name)
        if schema["type"] == "array":
            given[name] = check(schema, values, name)
            continue
        if len(values) > 1:
            raise invalid(f"{name} is given {len(values)} times")
        given[name] = check(schema, _read(schema, values[0], name), name)
    for name, schema in row.query.items():
        if schema.get("minItems") and name not in given:
            raise invalid(f"{name} is missing")
    return given


def _read(schema: Schema, value: str, name: str) -> Any:
    """Read a parameter, which is always text, as what it should be."""
    match schema["type"]:
        case "integer":
            sign = value[:1] == "-"
            digits = value[1:] if sign else value
            if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
                raise invalid(f"{name} must be a whole number, not {value[:100]!r}")
            return int(value)
        case "boolean":
            if value not in ("true", "false"):
                raise invalid(f"{name} must be true or false, not {value[:100]!r}")
            return value == "true"
        case _:
            return value


def _body(row: Row, request: Request) -> dict[str, Any]:
    body: bytes = request.scope[BODY]
    if row.body is None:
        if body.strip() not in (b"", b"{}"):
            raise invalid("this takes no body")
        return {}
    if not body.strip() and not row.needs_body:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise WebError(415, "unsupported_media_type", "the body must be JSON", "send Content-Type: application/json")
    try:
        value = decode_strict(body.decode())
    except (ArgumentError, UnicodeDecodeError) as error:
        raise invalid(f"the body cannot be read as JSON: {str(error).removeprefix('The arguments ')}") from None
    checked = check(row.body, value, "body")
    assert isinstance(checked, dict)
    return checked
