"""Who is measured, and with which settings. Everything not named here is the library's default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A library on a database with its settings; `name` is how tables and goals refer to it."""

    name: str
    library: str
    database: Literal["postgres", "sqlite"]
    about: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_peer(self) -> bool:
        return self.library != "duly"


DULY_PG = Contender(
    name="duly-pg", library="duly", database="postgres", about="PostgreSQL, `async def` handler"
)
DULY_PG_DEF = Contender(
    name="duly-pg-def",
    library="duly",
    database="postgres",
    about="PostgreSQL, `def` handler",
    settings={"handler": "def"},
)
DULY_SQLITE = Contender(
    name="duly-sqlite",
    library="duly",
    database="sqlite",
    about="SQLite, synchronous FULL, `async def` handler",
)
DULY_SQLITE_DEF = Contender(
    name="duly-sqlite-def",
    library="duly",
    database="sqlite",
    about="SQLite, synchronous FULL, `def` handler",
    settings={"handler": "def"},
)
PGQUEUER_BEST = Contender(
    name="pgqueuer-500",
    library="pgqueuer",
    database="postgres",
    about="one asyncpg connection, uvloop, batch_size=500 (its best here); bulk enqueue in lists of 1,000",
    settings={"batch": "500"},
)
PGQUEUER = Contender(
    name="pgqueuer",
    library="pgqueuer",
    database="postgres",
    about="one asyncpg connection, uvloop, defaults (batch_size=10)",
)
AWA = Contender(
    name="awa",
    library="awa",
    database="postgres",
    about="AsyncClient under uvloop, 128 workers; bulk enqueue by COPY in lists of 1,000",
    settings={"slots": "128"},
)
PROCRASTINATE = Contender(
    name="procrastinate",
    library="procrastinate",
    database="postgres",
    about="PsycopgConnector, defaults (concurrency=1, LISTEN on)",
)
HUEY = Contender(
    name="huey-sqlite",
    library="huey",
    database="sqlite",
    about="SqliteHuey, WAL, synchronous FULL (its default), no results, 1 worker thread (its default)",
    settings={"workers": "1"},
)
