-- What the pages of the dashboard show and nothing else asks for. Everything here is bounded, or over what is small: jobs that run,
-- workers, minutes of the last hours.

-- name: page_minutes What ran in each minute from a time on, by queue and task, and how long it had waited.
SELECT period_at, queue, task, sum(runs)::bigint, sum(succeeded)::bigint, sum(failed)::bigint, sum(retried)::bigint, sum(crashed)::bigint,
       sum(wait_5ms)::bigint, sum(wait_20ms)::bigint, sum(wait_100ms)::bigint, sum(wait_500ms)::bigint, sum(wait_1s)::bigint, sum(wait_5s)::bigint,
       sum(wait_15s)::bigint, sum(wait_1m)::bigint, sum(wait_5m)::bigint, sum(wait_30m)::bigint, sum(wait_2h)::bigint, sum(wait_more)::bigint
FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :from_at::bigint AND (:tenant::text IS NULL OR tenant = :tenant::text)
GROUP BY period_at, queue, task

-- name: page_parked How many jobs are parked, by reason.
SELECT reason, count(*) FROM duly.parked WHERE (:tenant::text IS NULL OR tenant = :tenant::text) GROUP BY reason ORDER BY reason

-- name: page_ended How many jobs ended so, counted up to a bound.
SELECT count(*) FROM (SELECT 1 FROM duly.ended WHERE state = :state::text LIMIT :most::integer) e

-- name: page_running What runs now, longest first.
SELECT id, queue, tenant, task, worker_id, claimed_at, attempt, progress, progress_text, cancel_at
FROM duly.running WHERE (:tenant::text IS NULL OR tenant = :tenant::text)
ORDER BY claimed_at, id LIMIT :n::integer

-- name: page_held How many jobs each worker runs.
SELECT worker_id, count(*) FROM duly.running GROUP BY worker_id

-- name: page_watched [postgres] How some jobs stand: what changes while one looks at them.
SELECT id, state, run_at, token, attempt, progress, progress_text, cancel_at, claimed_at FROM duly.places p
WHERE id = ANY (:ids::uuid[]) AND (:tenant::text IS NULL OR EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = p.id AND j.tenant = :tenant::text))

-- name: page_watched [sqlite] How some jobs stand. (Not by the view: SQLite would make all of it first.)
SELECT e.value,
       CASE WHEN s.id IS NOT NULL THEN 'scheduled' WHEN w.id IS NOT NULL OR k.id IS NOT NULL THEN 'queued' WHEN r.id IS NOT NULL THEN 'running'
            WHEN d.id IS NOT NULL THEN d.state WHEN c.id IS NOT NULL THEN 'disabled' END,
       COALESCE(s.run_at, w.run_at, k.run_at, r.run_at, c.next_run_at),
       COALESCE(s.token, w.token, k.token, r.token, d.token, c.token, 0), COALESCE(s.attempt, w.attempt, k.attempt, r.attempt, d.attempt, 0),
       r.progress, r.progress_text, r.cancel_at, r.claimed_at
FROM json_each(:ids) e
LEFT JOIN duly.scheduled s ON s.id = e.value LEFT JOIN duly.waiting w ON w.id = e.value LEFT JOIN duly.parked k ON k.id = e.value
LEFT JOIN duly.running r ON r.id = e.value LEFT JOIN duly.ended d ON d.id = e.value LEFT JOIN duly.recurring c ON c.id = e.value
WHERE COALESCE(s.id, w.id, k.id, r.id, d.id, c.id) IS NOT NULL
  AND (:tenant IS NULL OR EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = e.value AND j.tenant = :tenant))

-- name: page_strips [postgres] The last runs of several jobs, newest first.
SELECT r.job_id, r.token, r.outcome, r.started_at, r.finished_at
FROM unnest(:ids::uuid[]) AS i (id) CROSS JOIN LATERAL (
    SELECT job_id, token, outcome, started_at, finished_at FROM duly.runs WHERE job_id = i.id ORDER BY token DESC LIMIT :n::integer
) r

-- name: page_strips [sqlite] The last runs of several jobs, newest first.
SELECT r.job_id, r.token, r.outcome, r.started_at, r.finished_at
FROM json_each(:ids) e CROSS JOIN duly.runs r ON r.job_id = e.value
 AND r.token IN (SELECT l.token FROM duly.runs l WHERE l.job_id = e.value ORDER BY l.token DESC LIMIT :n)
ORDER BY r.job_id, r.token DESC

-- name: page_troubled Recurring jobs that need a look: they fail again and again, or were disabled because they did.
SELECT s.id, s.tenant, s.task, s.key, s.name, r.enabled, r.failures, r.last_error, r.disabled_reason
FROM duly.recurring r JOIN duly.schedules s ON s.id = r.id
WHERE r.failures >= :failures::integer AND (:tenant::text IS NULL OR s.tenant = :tenant::text)
ORDER BY r.failures DESC, s.task, s.key LIMIT :n::integer
