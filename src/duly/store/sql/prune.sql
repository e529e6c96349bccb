-- name: old_ended Finished jobs whose keeping time is over; not those that a unique key names while its window lasts.
SELECT e.id FROM duly.ended e WHERE e.state = :state::text AND e.finished_at < :now - :keep_us::bigint
AND NOT EXISTS (SELECT 1 FROM duly.unique_keys u WHERE u.job_id = e.id) ORDER BY e.finished_at, e.id LIMIT :n::integer

-- name: prune_jobs [postgres] Forget finished jobs and what happened to them; not those that somebody holds: nobody waits here.
WITH gone AS (
    DELETE FROM duly.ended WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM duly.ended WHERE id = ANY (:ids::uuid[]) AND state = :state::text FOR UPDATE SKIP LOCKED)) RETURNING id
), history AS (
    DELETE FROM duly.runs WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
), jobs AS (
    DELETE FROM duly.jobs WHERE id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT count(*) FROM gone

-- name: prune_runs [sqlite] Forget what happened to finished jobs.
DELETE FROM duly.runs WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: prune_what [sqlite] Forget finished jobs.
DELETE FROM duly.jobs WHERE id IN (SELECT value FROM json_each(:ids))

-- name: prune_ended [sqlite] Forget that they ended.
DELETE FROM duly.ended WHERE id IN (SELECT value FROM json_each(:ids))

-- name: prune_keys [postgres] Unique keys whose window is over; not those that somebody holds: nobody waits here.
DELETE FROM duly.unique_keys WHERE ctid = ANY (ARRAY(SELECT ctid FROM duly.unique_keys WHERE until <= :now FOR UPDATE SKIP LOCKED))

-- name: prune_keys [sqlite] Unique keys whose window is over.
DELETE FROM duly.unique_keys WHERE until <= :now

-- name: prune_rollups Counts whose keeping time is over.
DELETE FROM duly.rollups WHERE period_at < :now - :keep_us::bigint

-- name: old_minutes The oldest full hour whose counts are still by the minute.
SELECT min(period_at) - min(period_at) % 3600000000 FROM duly.rollups
WHERE period_us = 60000000 AND period_at < :now - :keep_us::bigint - 3600000000

-- name: delete_minutes [sqlite] Drop the counts by the minute of one hour.
DELETE FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :hour_at::bigint AND period_at < :hour_at::bigint + 3600000000
