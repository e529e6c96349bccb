"""The web application: two paths of its own, and duly's admin API and dashboard under it.

    DULY_TOKEN=... uvicorn examples.crawler.app:app

It crawls nothing itself: workers do.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

import duly.web

from . import pages
from .crawl import ask_for
from .database import create_table, jobs, transaction


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Make the tables when the server starts."""
    await run_in_threadpool(create_table)
    yield
    jobs.close()


async def post_crawl(request: Request) -> Response:
    """POST /api/crawl {"url": ...}: have a page crawled soon, and say which job it is."""
    try:
        url = json.loads(await request.body())["url"]
        job_id, created = await run_in_threadpool(ask_for, str(url))
    except (ValueError, KeyError, TypeError) as error:
        return JSONResponse({"error": f'send JSON: {{"url": "https://..."}}. {error}'}, status_code=400)
    return JSONResponse({"job_id": job_id, "created": created}, status_code=202)


def get_pages(request: Request) -> Response:
    """GET /api/pages: every page that is known."""
    with transaction() as connection:
        return JSONResponse(pages.everything(connection))


app = Starlette(
    routes=[
        Route("/api/crawl", post_crawl, methods=["POST"]),
        Route("/api/pages", get_pages),
        Mount("/", duly.web.app(jobs)),  # who has $DULY_TOKEN is let in; or auth=..., as your application knows people
    ],
    lifespan=lifespan,
)
