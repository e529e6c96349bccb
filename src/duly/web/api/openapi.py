"""The OpenAPI 3.1 document, made from the table of routes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from duly.__about__ import __version__
from duly.web.api.routes import ROWS
from duly.web.api.schema import ID, ref
from duly.web.api.shapes import SHAPES
from duly.web.api.table import Row

_ERRORS = {
    "400": "Something in the request is not as it must be",
    "401": "Nobody was let in",
    "403": "Not allowed: the scope, another tenant's, another site's, read-only",
    "404": "There is no such thing, or it is another tenant's",
    "408": "The body did not come in time",
    "409": "The state of the job does not allow it",
    "413": "The body is too large",
    "415": "The body is not JSON",
    "421": "This server does not answer for that host",
    "429": "Too many requests: come again later",
    "503": "The database cannot be used now",
}


@lru_cache(maxsize=16)
def document(prefix: str = "") -> dict[str, Any]:
    """Return the document. It is the same for everybody: it names nothing that is stored."""
    paths: dict[str, dict[str, Any]] = {}
    for row in ROWS:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "duly",
            "version": __version__,
            "summary": "Jobs, recurring jobs, queues, tenants and workers.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": prefix or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": SHAPES,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                code: {"description": text, "content": {"application/json": {"schema": ref("Error")}}}
                for code, text in _ERRORS.items()
            },
        },
    }


def _operation(row: Row) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "description": f"Needs the scope `{row.verb.scope}`"
        + ("; not for who is bound to a tenant." if row.verb.everyone else "."),
        "parameters": _parameters(row),
        "responses": {
            str(row.status): {
                "description": "Done",
                "content": {"application/json": {"schema": ref(row.answers)}},
            },
            **{code: {"$ref": f"#/components/responses/{code}"} for code in _ERRORS},
        },
    }
    if row.body is not None:
        made["requestBody"] = {"required": row.needs_body, "content": {"application/json": {"schema": row.body}}}
    return made


def _parameters(row: Row) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", row.path)
    path = [{"name": name, "in": "path", "required": True, "schema": row.path_schemas.get(name, ID)} for name in names]
    query = [
        {"name": name, "in": "query", "required": bool(schema.get("minItems")), "schema": schema}
        for name, schema in row.query.items()
    ]
    return [*path, *query]
