"""`set_enabled` by a condition, under every isolation that the caller's transaction may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from duly import Duly, RecurringJob
from tests.helpers import opened

SOMEBODY = "EXISTS (SELECT 1 FROM readers WHERE NOT gone)"


@pytest.fixture
def jobs(pg_url: str) -> Iterator[Duly]:
    with opened(pg_url) as jobs:
        yield jobs


@pytest.fixture
def job(jobs: Duly, pg_url: str) -> RecurringJob:
    @jobs.task
    def fetch() -> timedelta:
        return timedelta(hours=1)

    with psycopg.connect(pg_url) as connection:
        connection.execute("CREATE TABLE readers (name text PRIMARY KEY, gone boolean DEFAULT false)")
        connection.execute("INSERT INTO readers VALUES ('ada'), ('bob')")
    return fetch.recur()


def leave(connection: psycopg.Connection, isolation: str, name: str) -> None:
    connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}".encode())
    connection.execute("UPDATE readers SET gone = true WHERE name = %s", (name,))


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_two_last_readers_who_leave_at_once_never_leave_it_enabled_unnoticed(
    job: RecurringJob, pg_url: str, isolation: str
) -> None:
    with closing(psycopg.connect(pg_url)) as ada, closing(psycopg.connect(pg_url)) as bob:
        leave(ada, isolation, "ada")
        leave(bob, isolation, "bob")
        assert job.set_enabled(sql=SOMEBODY, connection=ada) is True
        ada.commit()
        if isolation != "READ COMMITTED":  # it would not see that ada has left; the database tells it so
            with pytest.raises(psycopg.errors.SerializationFailure):
                job.set_enabled(sql=SOMEBODY, connection=bob)
        else:
            assert job.set_enabled(sql=SOMEBODY, connection=bob) is False
            bob.commit()
            assert not job.refresh().enabled
