-- Text is found by `replace`, which the two databases agree on; LIKE is blind to case on one of them, and has wildcards.

-- name: list_jobs Jobs in whatever state, newest first.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail
FROM duly.jobs j JOIN duly.places p ON p.id = j.id
WHERE (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text) AND (:before_id::uuid IS NULL OR j.id < :before_id::uuid)
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_scheduled Jobs that stand in `scheduled`, newest first.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail
FROM duly.scheduled e JOIN duly.jobs j ON j.id = e.id JOIN duly.places p ON p.id = j.id
WHERE (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text) AND (:before_id::uuid IS NULL OR j.id < :before_id::uuid)
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_disabled Recurring jobs that are disabled and do not run, newest first.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail
FROM duly.recurring e JOIN duly.jobs j ON j.id = e.id JOIN duly.places p ON p.id = j.id
WHERE NOT e.enabled AND p.state = 'disabled' AND (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text) AND (:before_id::uuid IS NULL OR j.id < :before_id::uuid)
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_waiting Jobs that stand in `waiting`, newest first.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail
FROM duly.waiting e JOIN duly.jobs j ON j.id = e.id JOIN duly.places p ON p.id = j.id
WHERE (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text) AND (:before_id::uuid IS NULL OR j.id < :before_id::uuid)
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_parked Jobs that stand in `parked`, newest first.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail
FROM duly.parked e JOIN duly.jobs j ON j.id = e.id JOIN duly.places p ON p.id = j.id
WHERE (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text) AND (:before_id::uuid IS NULL OR j.id < :before_id::uuid)
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_running Jobs that stand in `running`, newest first.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail
FROM duly.running e JOIN duly.jobs j ON j.id = e.id JOIN duly.places p ON p.id = j.id
WHERE (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text) AND (:before_id::uuid IS NULL OR j.id < :before_id::uuid)
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_disabled Recurring jobs that are disabled and do not run, newest first.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail
FROM duly.recurring e JOIN duly.jobs j ON j.id = e.id JOIN duly.places p ON p.id = j.id
WHERE NOT e.enabled AND p.state = 'disabled' AND (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text) AND (:before_id::uuid IS NULL OR j.id < :before_id::uuid)
ORDER BY j.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_ended Jobs that stand in `ended`, newest first.
SELECT j.id, j.task, j.queue, j.tenant, j.args::text, j.priority, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at,
       j.enqueued_by, j.unique_key, j.tags, j.headers,
       p.state, p.run_at, p.token, p.attempt, p.crashes, p.claimed_at, p.finished_at,
       p.worker_id, p.cancel_at, p.progress, p.progress_text, p.reason, p.detail
FROM duly.ended e JOIN duly.jobs j ON j.id = e.id JOIN duly.places p ON p.id = j.id
WHERE e.state = :state::text AND (:task::text IS NULL OR j.task = :task::text) AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:tenant::text IS NULL OR j.tenant = :tenant::text) AND (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags)
  AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text) AND (:before_id::uuid IS NULL OR (e.finished_at, e.id) < (SELECT b.finished_at, b.id FROM duly.ended b WHERE b.id = :before_id::uuid))
ORDER BY e.finished_at DESC, e.id DESC LIMIT :limit::integer OFFSET :offset::integer
