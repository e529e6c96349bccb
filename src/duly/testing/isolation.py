"""Puts an application on a database of the test's own, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from duly.app import Duly
from duly.domain.clock import Clock
from duly.store.call import Dialect
from duly.store.opening import open_database
from duly.store.store import Store


@contextmanager
def temporary_database() -> Iterator[str]:
    """Yield the address of an SQLite file that does not exist yet, in a folder that goes away."""
    with TemporaryDirectory(prefix="duly-test-", ignore_cleanup_errors=True) as folder:
        yield f"sqlite:///{quote(str(Path(folder, 'duly.db')))}"


@contextmanager
def isolated(app: Duly, url: str | None = None, clock: Clock | None = None) -> Iterator[Duly]:
    """Put `app` on another database for a while: a temporary SQLite file, or `url`; on another clock if one is given.

    Its tasks stay declared on it; whoever imported it uses the other database, and afterwards the first again. On
    PostgreSQL the tables are made if they are missing; rows are left as they are.
    """
    if url is None:
        with temporary_database() as url, _rebound(app, url, clock or app.clock, alone=True):
            yield app
    else:
        with _rebound(app, url, clock or app.clock, alone=False):
            if app.store.dialect is Dialect.POSTGRES:
                app.migrate()
            yield app


@contextmanager
def _rebound(app: Duly, url: str, clock: Clock, *, alone: bool) -> Iterator[None]:
    settings = replace(app.settings, url=url)
    database = open_database(
        url,
        clock,
        schema=settings.schema,
        synchronous="normal",  # what a test leaves need not survive a power cut
        allow_network_disk=alone or settings.allow_network_disk,
        notify=settings.notify,
    )
    before, store = (app.settings, app.clock, app.store), Store(database, app.registry.mirror_hooks)
    app.settings, app.clock, app.store = settings, clock, store
    try:
        yield
    finally:
        app.settings, app.clock, app.store = before
        store.close()
