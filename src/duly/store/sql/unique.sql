-- All lock in one order: the key, then the job in its place. A claim locks no key; what is in `ended` comes before its key.

-- name: hold_key [postgres] Take a unique key for a job, or learn who holds it. Always names a row that exists.
INSERT INTO duly.unique_keys AS u (tenant, key, job_id, scope, until)
VALUES (:tenant::text, :key::text, :id::uuid, :scope::smallint, :now + :window_us::bigint)
ON CONFLICT (tenant, key) DO UPDATE
SET job_id = CASE WHEN u.until <= :now THEN excluded.job_id ELSE u.job_id END,
    scope = CASE WHEN u.until <= :now THEN excluded.scope ELSE u.scope END,
    until = CASE WHEN u.until <= :now THEN excluded.until ELSE u.until END,
    next_id = CASE WHEN u.until <= :now THEN NULL ELSE u.next_id END
RETURNING job_id, next_id, scope

-- name: hold_key [sqlite] Take a unique key for a job, or learn who holds it. Always names a row that exists.
INSERT INTO duly.unique_keys (tenant, key, job_id, scope, until)
VALUES (:tenant, :key, :id, :scope, :now + :window_us)
ON CONFLICT (tenant, key) DO UPDATE
SET job_id = CASE WHEN until <= :now THEN excluded.job_id ELSE job_id END,
    scope = CASE WHEN until <= :now THEN excluded.scope ELSE scope END,
    next_id = CASE WHEN until <= :now THEN NULL ELSE next_id END,
    until = CASE WHEN until <= :now THEN excluded.until ELSE until END
RETURNING job_id, next_id, scope

-- name: hold_keys [postgres] Take many unique keys at once, in key order; says who holds each.
INSERT INTO duly.unique_keys AS u (tenant, key, job_id, scope, until)
SELECT :tenant::text, b.key, b.id, :scope::smallint, :now + :window_us::bigint
FROM unnest((SELECT :keys::text[]), :ids::uuid[]) AS b(key, id) ORDER BY b.key COLLATE "C"
ON CONFLICT (tenant, key) DO UPDATE
SET job_id = CASE WHEN u.until <= :now THEN excluded.job_id ELSE u.job_id END,
    scope = CASE WHEN u.until <= :now THEN excluded.scope ELSE u.scope END,
    until = CASE WHEN u.until <= :now THEN excluded.until ELSE u.until END,
    next_id = CASE WHEN u.until <= :now THEN NULL ELSE u.next_id END
RETURNING key, job_id, scope

-- name: hold_keys [sqlite] Take many unique keys at once; says who holds each.
INSERT INTO duly.unique_keys (tenant, key, job_id, scope, until)
SELECT :tenant, json_extract(value, '$[0]'), json_extract(value, '$[1]'), :scope, :now + :window_us FROM json_each(:batch) WHERE true
ON CONFLICT (tenant, key) DO UPDATE
SET job_id = CASE WHEN until <= :now THEN excluded.job_id ELSE job_id END,
    scope = CASE WHEN until <= :now THEN excluded.scope ELSE scope END,
    next_id = CASE WHEN until <= :now THEN NULL ELSE next_id END,
    until = CASE WHEN until <= :now THEN excluded.until ELSE until END
RETURNING key, job_id, scope

-- name: release_key Give a unique key back if this job holds it.
DELETE FROM duly.unique_keys WHERE job_id = :id::uuid AND scope <> 3

-- name: forget_key A job is forgotten, and no key may name it any more.
DELETE FROM duly.unique_keys WHERE job_id = :id::uuid

-- name: drop_stale_key An enqueue was repeated after its job had ended: the key that it took again is not its own.
DELETE FROM duly.unique_keys WHERE job_id = :id::uuid AND scope <> 3 AND EXISTS (SELECT 1 FROM duly.ended WHERE id = :id::uuid)

-- name: key_of [postgres] Which key a running job holds, and who waits for it; locked, since a job may come to wait while this one ends.
SELECT tenant, key, next_id FROM duly.unique_keys WHERE job_id = :id::uuid FOR UPDATE

-- name: key_of_if_free [postgres] The same, unless somebody else holds it: a caller, whose transaction may stay open for long.
SELECT tenant, key, next_id FROM duly.unique_keys WHERE job_id = :id::uuid FOR UPDATE SKIP LOCKED

-- name: key_of_exists [postgres] Whether a job holds a key, whoever has locked it.
SELECT 1 FROM duly.unique_keys WHERE job_id = :id::uuid

-- name: key_of [sqlite] Which key a running job holds, and who waits for it.
SELECT tenant, key, next_id FROM duly.unique_keys WHERE job_id = :id

-- name: lock_key [postgres] Lock a key, whoever holds it.
SELECT tenant, key, next_id, job_id FROM duly.unique_keys WHERE tenant = :tenant::text AND key = :key::text FOR UPDATE

-- name: lock_key_if_free [postgres] The same, unless somebody else holds it.
SELECT tenant, key, next_id, job_id FROM duly.unique_keys WHERE tenant = :tenant::text AND key = :key::text FOR UPDATE SKIP LOCKED

-- name: lock_key_exists [postgres] Whether there is a key, whoever has locked it.
SELECT 1 FROM duly.unique_keys WHERE tenant = :tenant::text AND key = :key::text

-- name: lock_key [sqlite] Who holds a key.
SELECT tenant, key, next_id, job_id FROM duly.unique_keys WHERE tenant = :tenant AND key = :key

-- name: wanted_key The unique key that a job asked for.
SELECT tenant, unique_key FROM duly.jobs WHERE id = :id::uuid

-- name: wanted_keys [postgres] The unique keys that some jobs asked for.
SELECT id, tenant, unique_key FROM duly.jobs WHERE id = ANY (:ids::uuid[]) AND unique_key IS NOT NULL

-- name: take_key A key whose holder was to have it only while queued, and has started, goes to another job.
UPDATE duly.unique_keys SET job_id = :id::uuid, scope = :scope::smallint, until = :now + :window_us::bigint, next_id = NULL
WHERE tenant = :tenant::text AND key = :key::text

-- name: set_key_next Remember which job follows the one that runs.
UPDATE duly.unique_keys SET next_id = :next_id::uuid WHERE tenant = :tenant::text AND key = :key::text

-- name: pass_key Hand a key on to the job that follows.
UPDATE duly.unique_keys SET job_id = :next_id::uuid, next_id = NULL WHERE tenant = :tenant::text AND key = :key::text

-- name: replace_args The newest arguments win, while the job has not started. Says the key of its limits, and why it is set aside if it is.
UPDATE duly.jobs SET args = :args::json, enqueued_by = COALESCE(:enqueued_by::text, enqueued_by) WHERE id = :id::uuid
RETURNING limit_key, (SELECT p.reason FROM duly.parked p WHERE p.id = :id::uuid)

-- name: lock_unstarted [postgres] Lock a job that has not started, wherever it stands.
SELECT 'scheduled' FROM (SELECT 1 FROM duly.scheduled WHERE id = :id::uuid FOR UPDATE) a
UNION ALL SELECT 'waiting' FROM (SELECT 1 FROM duly.waiting WHERE id = :id::uuid FOR UPDATE) b
UNION ALL SELECT 'parked' FROM (SELECT 1 FROM duly.parked WHERE id = :id::uuid FOR UPDATE) c
