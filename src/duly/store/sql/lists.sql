-- A page of a list is found in two steps: which jobs are on it, and then those jobs with their places. So the view of all places is
-- only ever asked for some ids, which both databases can do by key.
-- Every page is a stretch of one index, from where the page before ended; a job that stands there is asked by key whether it is wanted.
-- Where few are wanted, a page looks at so many and no more: the statement `look_*` tells where that stretch ends.
-- Text is found by `replace`, which the two databases agree on; LIKE is blind to case on one of them, and has wildcards.

-- part: wanted What a list can be narrowed to.
(:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text)

-- part: hit Whether a job has a text; NULL if it does not fit what else is wanted.
CASE WHEN (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  THEN replace(j.args::text, :text::text, '') <> j.args::text END

-- part: searched The jobs that have the text, and the last at which was looked with how many those were.
SELECT h.id, NULL::bigint FROM (SELECT f.id FROM f WHERE f.hit ORDER BY f.id DESC LIMIT :limit::integer OFFSET :offset::integer) h
UNION ALL SELECT z.id, (SELECT count(*) FROM f) FROM (SELECT f.id FROM f ORDER BY f.id LIMIT 1) z

-- part: job_columns A job with its place.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers, p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail

-- name: jobs_of [postgres] Some jobs with the places they stand in.
@job_columns
FROM duly.jobs j JOIN duly.places p ON p.id = j.id WHERE j.id = ANY (:ids::uuid[]) AND p.id = ANY (:ids::uuid[])

-- name: jobs_of [sqlite] Some jobs with the places they stand in. (Not by the view: SQLite would make all of it first.)
SELECT j.id, j.task, j.queue, j.tenant, j.args, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       CASE WHEN s.id IS NOT NULL THEN 'scheduled' WHEN w.id IS NOT NULL OR k.id IS NOT NULL THEN 'queued' WHEN r.id IS NOT NULL THEN 'running'
            WHEN d.id IS NOT NULL THEN d.state ELSE 'disabled' END,
       CASE WHEN d.id IS NULL THEN COALESCE(s.run_at, w.run_at, k.run_at, r.run_at, c.next_run_at) END,
       COALESCE(s.token, w.token, k.token, r.token, d.token, c.token), COALESCE(s.attempt, w.attempt, k.attempt, r.attempt, d.attempt, 0),
       COALESCE(s.crashes, w.crashes, k.crashes, r.crashes, d.crashes, 0), r.claimed_at, d.finished_at, r.worker_id, r.cancel_at, r.progress,
       r.progress_text, CASE WHEN k.id IS NOT NULL THEN 'parked: ' || k.reason WHEN d.id IS NOT NULL THEN d.reason
                             WHEN COALESCE(s.id, w.id, r.id) IS NULL THEN c.disabled_reason END, k.detail
FROM json_each(:ids) e CROSS JOIN duly.jobs j ON j.id = e.value
LEFT JOIN duly.scheduled s ON s.id = j.id LEFT JOIN duly.waiting w ON w.id = j.id LEFT JOIN duly.parked k ON k.id = j.id
LEFT JOIN duly.running r ON r.id = j.id LEFT JOIN duly.ended d ON d.id = j.id LEFT JOIN duly.recurring c ON c.id = j.id
WHERE COALESCE(s.id, w.id, k.id, r.id, d.id) IS NOT NULL OR NOT c.enabled

-- part: stretch A stretch of a list by id, newest first.
e.id < :before_id::uuid AND e.id >= :from_id::uuid

-- part: newest A page of a list by id.
ORDER BY e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- part: last_looked_at The last job to look at, if there are so many.
ORDER BY e.id DESC LIMIT 1 OFFSET :look::integer - 1

-- name: list_jobs Which jobs there are, in whatever state, newest first.
SELECT j.id FROM duly.jobs j WHERE j.id < :before_id::uuid AND j.id >= :from_id::uuid AND
@wanted
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: look_jobs Where to stop looking among all jobs.
SELECT e.id FROM duly.jobs e WHERE
@stretch
@last_looked_at

-- name: list_scheduled Which jobs stand in `scheduled`, newest first.
SELECT e.id FROM duly.scheduled e WHERE
@stretch
AND (:everything::boolean OR (SELECT
@wanted
FROM duly.jobs j WHERE j.id = e.id))
@newest

-- name: look_scheduled Where to stop looking in `scheduled`.
SELECT e.id FROM duly.scheduled e WHERE
@stretch
@last_looked_at

-- name: list_waiting Which jobs stand in `waiting`, newest first.
SELECT e.id FROM duly.waiting e WHERE
@stretch
AND (:everything::boolean OR (SELECT
@wanted
FROM duly.jobs j WHERE j.id = e.id))
@newest

-- name: look_waiting Where to stop looking in `waiting`.
SELECT e.id FROM duly.waiting e WHERE
@stretch
@last_looked_at

-- name: list_parked Which jobs stand in `parked`, newest first.
SELECT e.id FROM duly.parked e WHERE
@stretch
AND (:everything::boolean OR (SELECT
@wanted
FROM duly.jobs j WHERE j.id = e.id))
@newest

-- name: look_parked Where to stop looking in `parked`.
SELECT e.id FROM duly.parked e WHERE
@stretch
@last_looked_at

-- name: list_running Which jobs stand in `running`, newest first.
SELECT e.id FROM duly.running e WHERE
@stretch
AND (:everything::boolean OR (SELECT
@wanted
FROM duly.jobs j WHERE j.id = e.id))
@newest

-- name: look_running Where to stop looking in `running`.
SELECT e.id FROM duly.running e WHERE
@stretch
@last_looked_at

-- name: list_disabled Which jobs recur, are disabled and do not run, newest first.
SELECT e.id FROM duly.recurring e WHERE NOT e.enabled AND NOT EXISTS (SELECT 1 FROM duly.running u WHERE u.id = e.id) AND
@stretch
AND (:everything::boolean OR (SELECT
@wanted
FROM duly.jobs j WHERE j.id = e.id))
@newest

-- name: look_disabled Where to stop looking among what is disabled.
SELECT e.id FROM duly.recurring e WHERE NOT e.enabled AND
@stretch
@last_looked_at

-- part: ended_stretch A stretch of what ended so, the last to end first.
e.state = :state::text AND e.finished_at <= :before_at::bigint AND e.finished_at >= :from_at::bigint
  AND (e.finished_at < :before_at::bigint OR e.id < :before_id::uuid) AND (e.finished_at > :from_at::bigint OR e.id >= :from_id::uuid)

-- name: list_ended Which jobs ended so, the last to end first.
SELECT e.id, e.finished_at FROM duly.ended e WHERE
@ended_stretch
AND (:everything::boolean OR (SELECT
@wanted
FROM duly.jobs j WHERE j.id = e.id))
ORDER BY e.finished_at DESC, e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: look_ended Where to stop looking among what ended so.
SELECT e.id, e.finished_at FROM duly.ended e WHERE
@ended_stretch
ORDER BY e.finished_at DESC, e.id DESC LIMIT 1 OFFSET :look::integer - 1

-- A text is looked for in the newest jobs that fit what else is wanted: `walk` jobs are passed at most to find `look` that fit. (The inner
-- LIMIT also keeps each job from being asked for twice.)

-- name: search_jobs Which of the newest jobs that fit have a text, in whatever state.
WITH f AS MATERIALIZED (SELECT w.id, w.hit FROM (SELECT j.id,
@hit
AS hit FROM duly.jobs j WHERE j.id < :before_id::uuid AND j.id >= :from_id::uuid
ORDER BY j.id DESC LIMIT :walk::integer) w WHERE w.hit IS NOT NULL ORDER BY w.id DESC LIMIT :look::integer)
@searched

-- name: search_jobs_of_tenant The same of one tenant, by its own index. (Written so that no other index is in that order.)
WITH f AS MATERIALIZED (SELECT w.id, w.hit FROM (SELECT j.id, j.tenant,
@hit
AS hit FROM duly.jobs j WHERE j.tenant <> '' AND (j.tenant, j.id) < (:tenant::text, :before_id::uuid)
  AND (j.tenant, j.id) >= (:tenant::text, :from_id::uuid)
ORDER BY j.tenant DESC, j.id DESC LIMIT :walk::integer) w WHERE w.hit IS NOT NULL ORDER BY w.tenant DESC, w.id DESC LIMIT :look::integer)
@searched

-- name: look_jobs_of_tenant Where to stop looking among all jobs of a tenant.
SELECT e.id FROM duly.jobs e WHERE e.tenant <> '' AND (e.tenant, e.id) < (:tenant::text, :before_id::uuid)
  AND (e.tenant, e.id) >= (:tenant::text, :from_id::uuid)
ORDER BY e.tenant DESC, e.id DESC LIMIT 1 OFFSET :look::integer - 1

-- name: search_scheduled Which of the newest jobs in `scheduled` that fit have a text.
WITH f AS MATERIALIZED (SELECT w.id, w.hit FROM (SELECT e.id, (SELECT
@hit
FROM duly.jobs j WHERE j.id = e.id) AS hit FROM duly.scheduled e WHERE
@stretch
ORDER BY e.id DESC LIMIT :walk::integer) w WHERE w.hit IS NOT NULL ORDER BY w.id DESC LIMIT :look::integer)
@searched

-- name: search_waiting Which of the newest jobs in `waiting` that fit have a text.
WITH f AS MATERIALIZED (SELECT w.id, w.hit FROM (SELECT e.id, (SELECT
@hit
FROM duly.jobs j WHERE j.id = e.id) AS hit FROM duly.waiting e WHERE
@stretch
ORDER BY e.id DESC LIMIT :walk::integer) w WHERE w.hit IS NOT NULL ORDER BY w.id DESC LIMIT :look::integer)
@searched

-- name: search_parked Which of the newest jobs in `parked` that fit have a text.
WITH f AS MATERIALIZED (SELECT w.id, w.hit FROM (SELECT e.id, (SELECT
@hit
FROM duly.jobs j WHERE j.id = e.id) AS hit FROM duly.parked e WHERE
@stretch
ORDER BY e.id DESC LIMIT :walk::integer) w WHERE w.hit IS NOT NULL ORDER BY w.id DESC LIMIT :look::integer)
@searched

-- name: search_running Which of the newest jobs in `running` that fit have a text.
WITH f AS MATERIALIZED (SELECT w.id, w.hit FROM (SELECT e.id, (SELECT
@hit
FROM duly.jobs j WHERE j.id = e.id) AS hit FROM duly.running e WHERE
@stretch
ORDER BY e.id DESC LIMIT :walk::integer) w WHERE w.hit IS NOT NULL ORDER BY w.id DESC LIMIT :look::integer)
@searched

-- name: search_disabled Which of the newest jobs among what is disabled that fit have a text.
WITH f AS MATERIALIZED (SELECT w.id, w.hit FROM (SELECT e.id, (SELECT
@hit
FROM duly.jobs j WHERE j.id = e.id) AS hit FROM duly.recurring e WHERE NOT e.enabled AND NOT EXISTS (SELECT 1 FROM duly.running u WHERE u.id = e.id) AND
@stretch
ORDER BY e.id DESC LIMIT :walk::integer) w WHERE w.hit IS NOT NULL ORDER BY w.id DESC LIMIT :look::integer)
@searched

-- name: search_ended Which of the jobs that ended so last and fit have a text.
WITH f AS MATERIALIZED (SELECT w.id, w.at, w.hit FROM (SELECT e.id, e.finished_at AS at, (SELECT
@hit
FROM duly.jobs j WHERE j.id = e.id) AS hit FROM duly.ended e WHERE
@ended_stretch
ORDER BY e.finished_at DESC, e.id DESC LIMIT :walk::integer) w WHERE w.hit IS NOT NULL ORDER BY w.at DESC, w.id DESC LIMIT :look::integer)
SELECT h.id, h.at, NULL::bigint FROM (SELECT f.id, f.at FROM f WHERE f.hit ORDER BY f.at DESC, f.id DESC LIMIT :limit::integer OFFSET :offset::integer) h
UNION ALL SELECT z.id, z.at, (SELECT count(*) FROM f) FROM (SELECT f.id, f.at FROM f ORDER BY f.at, f.id LIMIT 1) z

-- name: when_ended When a job ended.
SELECT finished_at FROM duly.ended WHERE id = :id::uuid

-- name: count_wanted How many of the jobs that ended so last are wanted.
SELECT count(*) FROM (SELECT e.id FROM duly.ended e WHERE
@ended_stretch
ORDER BY e.finished_at DESC, e.id DESC LIMIT :look::integer) e
WHERE (SELECT
@wanted
FROM duly.jobs j WHERE j.id = e.id)

-- name: queue_options What was said about queues: how fast each ages, and whether tenants take turns in it.
SELECT name, horizon_us, fair FROM duly.queues ORDER BY name

-- name: count_parked_jobs_of How many jobs of a tenant are parked.
SELECT count(*) FROM duly.parked WHERE tenant = :tenant::text
