"""Who is measured, and with which settings. Everything not named here is the library's default."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A library on a database with its settings; `name` is how tables and goals refer to it."""

    name: str
    library: str
    database: Literal["postgres", "sqlite", "redis"]
    about: str
    settings: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    """Which part of the jobs a slow one gets, so that a run of it takes seconds as well."""

    @property
    def is_peer(self) -> bool:
        return self.library not in ("duly", "bare")

    @property
    def described(self) -> str:
        """What the page says of it."""
        part = f"; {self.share:.0%} of the jobs" if self.share < 1 else ""
        return f"{self.library}: {self.about}{part}"

    def jobs(self, count: int) -> int:
        """How many of `count` jobs this one gets."""
        return max(2, round(count * self.share))

    def with_settings(self, suffix: str, about: str, **settings: str) -> "Contender":
        """The same under one more circumstance."""
        return replace(
            self,
            name=f"{self.name}-{suffix}",
            about=f"{self.about}; {about}",
            settings={**self.settings, **settings},
        )


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
DULY_PG_500 = Contender(
    name="duly-pg-500",
    library="duly",
    database="postgres",
    about="PostgreSQL, `async def` handler, 500 async slots (the default is 100)",
    settings={"slots": "500"},
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
BARE_PG = Contender(
    name="bare-pg",
    library="bare",
    database="postgres",
    about="a script that moves the same rows, 500 at a time, by one connection, and does nothing else",
)
BARE_SQLITE = Contender(
    name="bare-sqlite",
    library="bare",
    database="sqlite",
    about="a script that moves the same rows, 500 at a time, in transactions, synchronous FULL",
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
    share=0.1,
)
PROCRASTINATE_BEST = Contender(
    name="procrastinate-30",
    library="procrastinate",
    database="postgres",
    about="PsycopgConnector with up to 20 connections, concurrency=30 (10 and 100 are no faster)",
    settings={"concurrency": "30", "connections": "20"},
    share=0.1,
)
OBAN = Contender(
    name="oban",
    library="oban",
    database="postgres",
    about="uvloop, queue limit 100, pool of 10; bulk enqueue in lists of 1,000",
    settings={"limit": "100", "connections": "10"},
    share=0.5,
)
DBOS = Contender(
    name="dbos",
    library="dbos",
    database="postgres",
    about="queue with defaults (looks every second)",
    share=0.25,
)
DBOS_BEST = Contender(
    name="dbos-1000",
    library="dbos",
    database="postgres",
    about="queue with worker_concurrency=1000, polling_interval_sec=0.05 (its best here)",
    settings={"concurrency": "1000", "polling": "0.05"},
    share=0.25,
)
SAQ_PG = Contender(
    name="saq-pg",
    library="saq",
    database="postgres",
    about="uvloop, concurrency=50, default pool (4 to 20)",
    settings={"concurrency": "50"},
    share=0.25,
)
SAQ_REDIS = Contender(
    name="saq-redis",
    library="saq",
    database="redis",
    about="uvloop, hiredis, concurrency=50",
    settings={"concurrency": "50"},
    share=0.25,
)
CELERY = Contender(
    name="celery-solo",
    library="celery",
    database="redis",
    about=(
        "solo pool (its fastest with one process), prefetch 64, no results, no gossip, mingle or heartbeat,"
        " hiredis"
    ),
    settings={"pool": "solo", "prefetch": "64"},
    share=0.25,
)
CELERY_PREFORK = Contender(
    name="celery",
    library="celery",
    database="redis",
    about="the same with its default pool: prefork, 2 child processes",
    settings={"pool": "prefork", "children": "2", "prefetch": "64"},
    share=0.25,
)
DRAMATIQ = Contender(
    name="dramatiq",
    library="dramatiq",
    database="redis",
    about="8 threads (its default) in one process without a supervisor, no retries, hiredis",
    settings={"threads": "8"},
)
DRAMATIQ_BEST = Contender(
    name="dramatiq-32",
    library="dramatiq",
    database="redis",
    about="the same with 32 threads (its best here)",
    settings={"threads": "32"},
)
RQ = Contender(
    name="rq",
    library="rq",
    database="redis",
    about="SimpleWorker (does not fork), hiredis; bulk enqueue in lists of 1,000",
    share=0.15,
)
TASKIQ = Contender(
    name="taskiq",
    library="taskiq",
    database="redis",
    about=(
        "RedisStreamBroker, xread_count=100, max_async_tasks=100, uvloop, one process without a supervisor,"
        " hiredis"
    ),
    settings={"read": "100", "concurrency": "100"},
)
HUEY = Contender(
    name="huey-sqlite",
    library="huey",
    database="sqlite",
    about="SqliteHuey, WAL, synchronous FULL (its default), no results, 1 worker thread (its default)",
    settings={"workers": "1"},
)
HUEY_REDIS = Contender(
    name="huey-redis",
    library="huey_redis",
    database="redis",
    about="RedisHuey, no results, 4 worker threads, hiredis",
    settings={"workers": "4"},
)

ON_POSTGRES = (PGQUEUER, PROCRASTINATE, OBAN, SAQ_PG, DBOS, AWA)
"""The peers on PostgreSQL; settings that only make one drain faster are a contender of their own."""

ON_REDIS = (CELERY, DRAMATIQ, RQ, TASKIQ, HUEY_REDIS, SAQ_REDIS)
