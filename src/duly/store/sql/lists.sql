-- A page of a list is found in two steps: which jobs are on it, and then those jobs with their places. So the view of all places is
-- only ever asked for some ids, which both databases can do by key.
-- Text is found by `replace`, which the two databases agree on; LIKE is blind to case on one of them, and has wildcards.

-- part: wanted What a list can be narrowed to.
(:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text)

-- part: older Only jobs older than the last of the page before.
  AND (:before_id::uuid IS NULL OR j.id < :before_id::uuid)

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

-- name: list_jobs Which jobs there are, in whatever state, newest first.
SELECT j.id FROM duly.jobs j
WHERE
@wanted
@older
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_scheduled Which jobs stand in `scheduled`, newest first.
SELECT j.id FROM duly.scheduled e JOIN duly.jobs j ON j.id = e.id
WHERE
@wanted
@older
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_waiting Which jobs stand in `waiting`, newest first.
SELECT j.id FROM duly.waiting e JOIN duly.jobs j ON j.id = e.id
WHERE
@wanted
@older
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_parked Which jobs stand in `parked`, newest first.
SELECT j.id FROM duly.parked e JOIN duly.jobs j ON j.id = e.id
WHERE
@wanted
@older
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_running Which jobs stand in `running`, newest first.
SELECT j.id FROM duly.running e JOIN duly.jobs j ON j.id = e.id
WHERE
@wanted
@older
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_disabled Which jobs recur, are disabled and do not run, newest first.
SELECT j.id FROM duly.recurring e JOIN duly.jobs j ON j.id = e.id
WHERE NOT e.enabled AND NOT EXISTS (SELECT 1 FROM duly.running u WHERE u.id = e.id) AND
@wanted
@older
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_ended Which jobs ended so, the last to end first.
SELECT j.id FROM duly.ended e JOIN duly.jobs j ON j.id = e.id
WHERE e.state = :state::text AND
@wanted
  AND (:before_id::uuid IS NULL OR (e.finished_at, e.id) < (SELECT b.finished_at, b.id FROM duly.ended b WHERE b.id = :before_id::uuid))
ORDER BY e.finished_at DESC, e.id DESC LIMIT :limit::integer OFFSET :offset::integer
