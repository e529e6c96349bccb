-- name: ended_among [postgres] Which of these jobs have ended, and how.
SELECT id, state FROM duly.ended WHERE id = ANY (:ids::uuid[])

-- name: ended_among [sqlite] Which of these jobs have ended, and how.
SELECT id, state FROM duly.ended WHERE id IN (SELECT value FROM json_each(:batch))

-- name: last_runs [postgres] The last run of each of these jobs, without what may be long.
SELECT r.* FROM unnest((SELECT :ids::uuid[])) AS i (id) CROSS JOIN LATERAL (
    SELECT job_id, token, attempt, outcome, started_at, finished_at, worker_id, error_kind, error, NULL::text, NULL::text, NULL::text
    FROM duly.runs WHERE job_id = i.id ORDER BY token DESC LIMIT 1) r

-- name: last_runs [sqlite] The last run of each of these jobs, without what may be long.
SELECT job_id, token, attempt, outcome, started_at, finished_at, worker_id, error_kind, error, NULL, NULL, NULL
FROM json_each(:batch) e CROSS JOIN duly.runs r ON r.job_id = e.value AND r.token = (SELECT max(l.token) FROM duly.runs l WHERE l.job_id = e.value)

-- name: newest_runs_of The newest runs of a job before some token, newest first.
SELECT job_id, token, attempt, outcome, started_at, finished_at, worker_id, error_kind, error, traceback, result, log
FROM duly.runs WHERE job_id = :id::uuid AND token < :before_token::bigint ORDER BY token DESC LIMIT :n::integer
