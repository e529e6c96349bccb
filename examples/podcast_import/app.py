"""The web application: it answers at once, and a duly worker in the same process does the slow work.

    uvicorn --app-dir examples podcast_import.app:app

Start as many processes of it as you like on one file: an import runs in any of them, in three at once at most.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from duly import JobNotFound, State

from . import podcasts
from .feed import BadFeed, check_url
from .jobs import jobs, podcast_import


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Run a worker for as long as the server runs."""
    podcasts.create_tables()
    async with jobs.worker():
        yield
    jobs.close()


async def post_import(request: Request) -> Response:
    """POST /api/podcasts/import {"feed_url": ...}: put the import into the queue and say which job it is."""
    feed_url = feed_url_in(await request.body())
    podcast_id, job_id = await run_in_threadpool(start_import, feed_url)
    return JSONResponse({"podcast_id": podcast_id, "job_id": job_id}, status_code=202)


def start_import(feed_url: str) -> tuple[int, str]:
    """Add the podcast and enqueue its import, both or neither. One that is under way is not started twice."""
    with podcasts.transaction() as connection:
        podcast_id = podcasts.add(connection, feed_url)
        job = podcast_import.using(connection=connection, unique=True).enqueue(podcast_id)
        podcasts.note_job(connection, podcast_id, job.id)
    return podcast_id, job.id


def feed_url_in(body: bytes) -> str:
    """Read the address from a request."""
    try:
        return check_url(str(json.loads(body)["feed_url"]))
    except BadFeed as error:
        raise HTTPException(400, str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise HTTPException(400, 'send JSON: {"feed_url": "https://..."}') from error


def get_podcasts(request: Request) -> Response:
    """GET /api/podcasts: every podcast and how many episodes it has."""
    return JSONResponse(podcasts.everything())


def get_job(request: Request) -> Response:
    """GET /api/jobs/{id}: how an import stands."""
    job = jobs.get(request.path_params["id"])
    return JSONResponse(
        {
            "id": job.id,
            "state": job.state,
            "attempts": job.attempts,
            "progress": job.progress,
            "doing": job.progress_text,
            "result": job.result() if job.state is State.SUCCEEDED else None,
            "error": job.last_error,
        }
    )


def refused(request: Request, error: Exception) -> Response:
    """Say what was wrong with a request."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, status_code=error.status_code)
    return JSONResponse({"error": str(error)}, status_code=404)


app = Starlette(
    routes=[
        Route("/api/podcasts/import", post_import, methods=["POST"]),
        Route("/api/podcasts", get_podcasts),
        Route("/api/jobs/{id}", get_job),
    ],
    exception_handlers={HTTPException: refused, JobNotFound: refused},
    lifespan=lifespan,
)
