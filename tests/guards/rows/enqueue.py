"""Guards of enqueues: an id is stored once, a unique key is held by one job."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Schema, Statement

AGAIN = "F14 P7"
KEY = "F27 I7 P13"
LOCKS = "F20 F27 I7 P13"

ENQUEUE = (
    *(
        Guard(
            name=f"{name}: an id that is there is left alone",
            protects=AGAIN,
            without="an enqueue that is repeated after a lost reply fails",
            edits=(
                Statement(
                    block, "\n    ON CONFLICT (id) DO NOTHING" if "postgres" in block else "ON CONFLICT (id) DO NOTHING"
                ),
            ),
        )
        for name, block in (
            ("enqueue_due (PostgreSQL)", "enqueue_due [postgres]"),
            ("enqueue_at (PostgreSQL)", "enqueue_at [postgres]"),
            ("insert_job (SQLite)", "insert_job [sqlite]"),
        )
    ),
    Guard(
        name="duly.enqueue(): an id that is there is left alone",
        protects=AGAIN,
        without="an enqueue from SQL that is repeated fails",
        edits=(
            Schema(
                "0001_core.postgres.sql",
                "    ON CONFLICT DO NOTHING;\n    IF NOT FOUND THEN",
                "    ;\n    IF NOT FOUND THEN",
            ),
        ),
    ),
    Guard(
        name="duly.store_job(): an id that is there is left alone",
        protects=AGAIN,
        without="a plain enqueue that is repeated fails",
        edits=(
            Schema(
                "0001_core.postgres.sql", "    ON CONFLICT DO NOTHING;\n    IF FOUND THEN", "    ;\n    IF FOUND THEN"
            ),
        ),
    ),
    Guard(
        name="duly.store_job(): no second place",
        protects="F14 I4 P7",
        without="a plain enqueue that is repeated has the job run twice",
        edits=(Schema("0001_core.postgres.sql", "    IF FOUND THEN\n", "    IF true THEN\n"),),
    ),
    Guard(
        name="known_jobs: what is stored already (PostgreSQL)",
        protects=AGAIN,
        without="a bulk enqueue that is repeated fails",
        edits=(Statement("known_jobs [postgres]", "WHERE id = ANY", "WHERE false AND id = ANY"),),
    ),
    Guard(
        name="known_jobs: what is stored already (SQLite)",
        protects=AGAIN,
        without="a bulk enqueue that is repeated fails",
        edits=(Statement("known_jobs [sqlite]", "WHERE id IN", "WHERE 0 AND id IN"),),
    ),
    Guard(
        name="hold_key: a key belongs to one job (PostgreSQL)",
        protects=KEY,
        without="a second enqueue takes the key away from the job that holds it",
        edits=(
            Statement("hold_key [postgres]", "job_id = CASE WHEN u.until <= :now THEN", "job_id = CASE WHEN true THEN"),
        ),
    ),
    Guard(
        name="hold_key: a key belongs to one job (SQLite)",
        protects=KEY,
        without="a second enqueue takes the key away from the job that holds it",
        edits=(
            Statement("hold_key [sqlite]", "job_id = CASE WHEN until <= :now THEN", "job_id = CASE WHEN true THEN"),
        ),
    ),
    Guard(
        name="hold_keys: a key belongs to one job (PostgreSQL)",
        protects=KEY,
        without="a second bulk enqueue takes keys away from the jobs that hold them",
        edits=(
            Statement(
                "hold_keys [postgres]", "job_id = CASE WHEN u.until <= :now THEN", "job_id = CASE WHEN true THEN"
            ),
        ),
    ),
    Guard(
        name="hold_keys: a key belongs to one job (SQLite)",
        protects=KEY,
        without="a second bulk enqueue takes keys away from the jobs that hold them",
        edits=(
            Statement("hold_keys [sqlite]", "job_id = CASE WHEN until <= :now THEN", "job_id = CASE WHEN true THEN"),
        ),
    ),
    Guard(
        name="hold_keys: in one order",
        protects=LOCKS,
        without="two bulk enqueues with the same keys deadlock",
        edits=(Statement("hold_keys [postgres]", ' ORDER BY b.key COLLATE "C"', ' ORDER BY b.key COLLATE "C" DESC'),),
    ),
    Guard(
        name="release_key: not within its window",
        protects=KEY,
        without="a key that is held for a time is free as soon as its job ends",
        edits=(Statement("release_key", " AND scope <> 3"),),
    ),
    Guard(
        name="drop_stale_key: not within its window",
        protects=KEY,
        without="a repeated enqueue frees a key that is held for a time",
        edits=(Statement("drop_stale_key", " AND scope <> 3"),),
    ),
    Guard(
        name="drop_stale_key: only of what has ended",
        protects=KEY,
        without="a repeated enqueue frees the key of the job that it enqueued",
        edits=(Statement("drop_stale_key", " AND EXISTS (SELECT 1 FROM duly.ended WHERE id = :id::uuid)"),),
    ),
    Guard(
        name="key_of: lock",
        protects=LOCKS,
        without="a job that comes to wait for a key while its holder ends is forgotten",
        edits=(Statement("key_of [postgres]", " FOR UPDATE"),),
    ),
    *(
        Guard(
            name=f"{name}: {what}",
            protects=LOCKS if then == "" else "F20 P4",
            without=without,
            edits=(Statement(f"{name} [postgres]", " FOR UPDATE SKIP LOCKED", then),),
        )
        for name in ("key_of_if_free", "lock_key_if_free")
        for what, then, without in (
            ("lock", "", "the end of a run and who is about to have its key do not see each other"),
            (
                "goes round what others hold",
                " FOR UPDATE",
                "a caller's open transaction keeps all runs of a worker from ending",
            ),
        )
    ),
    Guard(
        name="lock_key: lock",
        protects=LOCKS,
        without="a cancel and the end of a run hold a key and its job in opposite order, and deadlock",
        edits=(Statement("lock_key [postgres]", " FOR UPDATE"),),
    ),
    *(
        Guard(
            name=f"lock_unstarted: lock in {place}",
            protects=LOCKS,
            without="a job starts with its old arguments while they are replaced, and the new ones are lost",
            edits=(
                Statement(
                    "lock_unstarted [postgres]",
                    f"FROM duly.{place} WHERE id = :id::uuid FOR UPDATE",
                    f"FROM duly.{place} WHERE id = :id::uuid",
                ),
            ),
        )
        for place in ("scheduled", "waiting", "parked")
    ),
    *(
        Guard(
            name=f"{name}: the key of this tenant",
            protects="I10 P19",
            without="the keys of other tenants are changed too",
            edits=(Statement(name, "tenant = :tenant::text AND "),),
        )
        for name in ("take_key", "set_key_next", "pass_key")
    ),
    *(
        Guard(
            name=f"{name}: the key of this tenant (PostgreSQL)",
            protects="I10 P19",
            without="the end of a run finds the key of another tenant",
            edits=(Statement(f"{name} [postgres]", "tenant = :tenant::text AND "),),
        )
        for name in ("lock_key", "lock_key_if_free", "lock_key_exists")
    ),
)
