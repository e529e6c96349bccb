"""The OpenAPI document is complete, and no request that it allows or forbids gets an answer that it does not name."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from duly import Duly
from duly.web.api.openapi import document
from duly.web.api.routes import BEYOND, PROMISED, ROWS
from tests.helpers import opened
from tests.web.browser import HOST, TOKEN, Browser, serve
from tests.web.conftest import declare
from tests.web.running import one_running


@pytest.mark.requirement("C9")
def test_the_promised_paths_are_there() -> None:
    assert {(row.method, row.path) for row in PROMISED} == {
        ("GET", "/api/admin/jobs/stats"),
        ("GET", "/api/admin/jobs"),
        ("PUT", "/api/admin/jobs/{id}/status"),
        ("PUT", "/api/admin/jobs/{id}/priority"),
        ("POST", "/api/admin/jobs/{id}/boost"),
        ("POST", "/api/admin/jobs/{id}/retry"),
        ("PUT", "/api/admin/jobs/bulk/status"),
        ("POST", "/api/admin/jobs/bulk/retry"),
        ("GET", "/api/admin/scheduled-jobs"),
        ("POST", "/api/admin/scheduled-jobs"),
        ("GET", "/api/admin/scheduled-jobs/{id}"),
        ("PUT", "/api/admin/scheduled-jobs/{id}"),
        ("DELETE", "/api/admin/scheduled-jobs/{id}"),
        ("POST", "/api/admin/scheduled-jobs/{id}/toggle"),
        ("POST", "/api/jobs/tick"),
    }


def test_every_row_is_named_once_and_says_what_it_does() -> None:
    pairs = [(row.method, row.path) for row in ROWS]
    assert len(pairs) == len(set(pairs)) == len(PROMISED) + len(BEYOND)
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.summary.endswith("."), row.path


def test_the_document_is_served_under_any_prefix(lite: Duly) -> None:
    from starlette.applications import Starlette

    host = Starlette()
    host.mount("/ops", serve(lite))
    served = Browser(host, "/ops", TOKEN).get("/api/openapi.json").json()
    assert served == json.loads(json.dumps(document("/ops")))
    assert served["servers"] == [{"url": "/ops"}]
    assert served["openapi"].startswith("3.1")
    assert set(served["paths"]) == {row.path for row in ROWS}


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from refs(each)
    elif isinstance(value, list):
        for each in value:
            yield from refs(each)


def test_every_reference_leads_somewhere_and_every_shape_is_used() -> None:
    made = document()
    used = set(refs(made))
    for ref in used:
        place = made
        for part in ref.removeprefix("#/").split("/"):
            place = place[part]
    shapes = {f"#/components/schemas/{name}" for name in made["components"]["schemas"]}
    assert shapes <= used


# -- every request it allows, and many it forbids ----------------------------------------------------------------------

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture
def busy(sqlite_url: str) -> Iterator[tuple[Duly, list[str]]]:
    """A database with jobs in every state, and their ids."""
    with opened(sqlite_url, log_lines=5) as jobs:
        declare(jobs)
        add, send = jobs["add"], jobs["send"]
        ids = [add.enqueue(1).id, add.using(delay="1h", tenant="acme", tags=["t"]).enqueue(2).id]
        send.enqueue("nobody")
        ids += [send.enqueue("ann", password="x").id, add.recur("k", every="1h", args={"x": 1}).id, one_running(jobs)]
        jobs.tick(2, queues="mail")
        jobs.pause(queue="mail", reason="r")
        yield jobs, [*ids, jobs.create_token("ci").id]


@pytest.mark.parametrize("mode, examples", [(GenerationMode.POSITIVE, 10), (GenerationMode.NEGATIVE, 4)])
def test_no_request_gets_an_answer_that_the_document_does_not_name(
    busy: tuple[Duly, list[str]], mode: GenerationMode, examples: int
) -> None:
    assert asked(*busy, mode, examples, seconds=20) > 100


@pytest.mark.deep
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_of_very_many_gets_another_answer(busy: tuple[Duly, list[str]], mode: GenerationMode) -> None:
    assert asked(*busy, mode, 150, seconds=1_000) > 5_000


def asked(jobs: Duly, ids: list[str], mode: GenerationMode, examples: int, *, seconds: float) -> int:
    """Ask for so many examples of every operation, and hold each answer against the document. Returns how many."""
    app = serve(jobs)
    headers = {"host": HOST, "authorization": f"Bearer {TOKEN}"}
    # Ticks would run for real what is there, and may wait for it: they have tests of their own.
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=headers).exclude(path="/api/jobs/tick")
    schema.config.generation.update(with_security_parameters=False)  # our header is there already
    ends, count = time.monotonic() + seconds, 0
    for result in schema.get_all_operations():
        operation = result.ok()  # type: ignore[union-attr]  # an error would be one in the document

        @seed(1)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), known=st.sampled_from([None, *ids]))
        def ask(case: Any, known: str | None) -> None:
            nonlocal count
            if known is not None and mode is GenerationMode.POSITIVE and "id" in (case.path_parameters or {}):
                case.path_parameters["id"] = known
            case.validate_response(case.call(headers=headers), checks=CHECKS)
            count += 1

        with suppress(Unsatisfiable):  # what takes nothing cannot be asked wrongly
            ask()
        if time.monotonic() > ends:  # the machine is slow: what was asked so far must do
            break
    return count
