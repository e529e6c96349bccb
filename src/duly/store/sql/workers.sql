-- name: insert_worker A worker has started.
INSERT INTO duly.workers (id, host, boot_id, pid_namespace, pid, process_started_at, started_at, seen_at, lease_us,
                          queues, tasks, slots, wake, idle, state, version, knows, clock_ahead_us, clock_doubt_us, capacity)
VALUES (:id::uuid, :host::text, :boot_id::text, :pid_namespace::text, :pid::bigint, :process_started_at::text, :now, :now,
        :lease_us::bigint, :queues::text, :tasks::text, :slots::integer, :wake::text, true, 'running', :version::text,
        :knows::integer, :clock_ahead_us::bigint, :clock_doubt_us::bigint, :capacity::text)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, tasks = excluded.tasks, slots = excluded.slots, capacity = excluded.capacity

-- name: see_worker A worker is alive; says how long until the next job is due or gate opens, and the next lease could lapse.
UPDATE duly.workers SET seen_at = :now, state = :state::text,
    clock_ahead_us = COALESCE(:clock_ahead_us::bigint, clock_ahead_us), clock_doubt_us = COALESCE(:clock_doubt_us::bigint, clock_doubt_us),
    memory_bytes = COALESCE(:memory_bytes::bigint, memory_bytes)
WHERE id = :id::uuid
RETURNING :now,
@soonest
- :now, (SELECT min(leased_until) - :lease_now FROM duly.running WHERE worker_id <> :id::uuid),
(SELECT max(COALESCE(compatible_from, version)) FROM duly.schema_version), (SELECT max(version) FROM duly.schema_version),
@miscounted

-- part: miscounted [postgres] Whether PostgreSQL takes a table of live jobs for (nearly) empty that is not, and we may have it counted. None where VACUUM shrank it.
(SELECT count(*) FROM pg_class c
 WHERE c.relname IN ('waiting', 'running', 'scheduled', 'parked', 'admitted') AND c.relkind = 'r'
   AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = (SELECT tableoid FROM duly.schema_version LIMIT 1))
   AND c.relpages > 0 AND c.reltuples >= 0 AND pg_has_role(c.relowner, 'USAGE')
   AND c.reltuples / c.relpages * (pg_relation_size(c.oid) / current_setting('block_size')::bigint) * 10 + 1000 < pg_stat_get_live_tuples(c.oid))

-- part: miscounted [sqlite] There are no such statistics.
0

-- name: count_anew [postgres] Have PostgreSQL count tables that it takes for empty. One that somebody counts or cleans at this moment is left to them.
ANALYZE (SKIP_LOCKED) duly.waiting, duly.running, duly.scheduled, duly.parked, duly.admitted

-- name: set_idle A worker goes to sleep or is busy, so enqueuers know whether to wake it.
UPDATE duly.workers SET idle = :idle::boolean WHERE id = :id::uuid

-- name: delete_worker A worker has stopped.
DELETE FROM duly.workers WHERE id = :id::uuid

-- name: list_workers Every worker on record.
SELECT id, host, boot_id, pid_namespace, pid, process_started_at, started_at, seen_at, lease_us, queues, tasks, slots, wake, idle, state,
       version, :now - seen_at, clock_ahead_us, clock_doubt_us, capacity, memory_bytes
FROM duly.workers ORDER BY started_at, id

-- name: forget_workers Workers not seen for long, and holding nothing.
DELETE FROM duly.workers WHERE seen_at < :now - :silent_us::bigint - lease_us
AND NOT EXISTS (SELECT 1 FROM duly.running r WHERE r.worker_id = duly.workers.id)
