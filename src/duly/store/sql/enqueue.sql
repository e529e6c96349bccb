-- name: store_job [postgres] Store one plain job, commit, wake a sleeping worker: one round trip, on our own connections.
CALL duly.store_job(:id::uuid, :task::text, :queue::text, :tenant::text, :args::json, :priority::smallint, :max_attempts::integer,
                    :horizon::bigint, :channel::text, :payload::text, :now)

-- name: enqueue_due [postgres] Store one job and put it, due now, into its lane. No row back if the id exists.
WITH job AS (
    INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, retry, timeout_us, expires_at,
                           created_at, enqueued_by, unique_key, tags, headers, limit_key)
    VALUES (:id::uuid, :task::text, :queue::text, :tenant::text, :args::json, :priority::smallint,
            :max_attempts::integer, :retry::text, :timeout_us::bigint,
            COALESCE(:expires_at::bigint, :now + :expires_us::bigint),
            :now, :enqueued_by::text, :unique_key::text, :tags::text, :headers::text, :limit_key::text)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, created_at
)
INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority, hold)
SELECT :queue::text, :tenant::text, :task::text,
       created_at - :priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues WHERE name = :queue::text), :horizon::bigint) / 100),
       id, created_at, :priority::smallint, :hold::smallint
FROM job WHERE :limit_key::text IS NULL
RETURNING id

-- name: enqueue_at [postgres] Store one job for a time or after a delay; a time already past puts it into its lane, or aside if it has a key. All at one instant: asked again, the clock might say that it is due by now, too. No row back if the id exists.
WITH due AS (
    SELECT COALESCE(:run_at::bigint, :now + :delay_us::bigint) AS run_at
), job AS (
    INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, retry, timeout_us, expires_at,
                           created_at, enqueued_by, unique_key, tags, headers, limit_key)
    SELECT :id::uuid, :task::text, :queue::text, :tenant::text, :args::json, :priority::smallint,
           :max_attempts::integer, :retry::text, :timeout_us::bigint,
           COALESCE(:expires_at::bigint, due.run_at + :expires_us::bigint),
           :now, :enqueued_by::text, :unique_key::text, :tags::text, :headers::text, :limit_key::text
    FROM due
    ON CONFLICT (id) DO NOTHING
    RETURNING id, created_at
), later AS (
    INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, hold)
    SELECT job.id, due.run_at, :queue::text, :tenant::text, :task::text, :priority::smallint, :hold::smallint
    FROM job, due WHERE due.run_at > :now
), soon AS (
    INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority, hold)
    SELECT :queue::text, :tenant::text, :task::text,
           due.run_at - :priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues WHERE name = :queue::text), :horizon::bigint) / 100),
           job.id, due.run_at, :priority::smallint, :hold::smallint
    FROM job, due WHERE due.run_at <= :now AND :limit_key::text IS NULL
), aside AS (
    INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, hold, parked_at, reason, mark, rank)
    SELECT job.id, :queue::text, :tenant::text, :task::text, due.run_at, :priority::smallint, :hold::smallint, :now, 'arrived', :limit_key::text,
           due.run_at - :priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues WHERE name = :queue::text), :horizon::bigint) / 100)
    FROM job, due WHERE due.run_at <= :now AND :limit_key::text IS NOT NULL
)
SELECT id FROM job

-- name: insert_job [sqlite] Store what one job is to run. No row back if the id exists.
INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, retry, timeout_us, expires_at,
                       created_at, enqueued_by, unique_key, tags, headers, limit_key)
VALUES (:id, :task, :queue, :tenant, :args, :priority, :max_attempts, :retry, :timeout_us,
        COALESCE(:expires_at, COALESCE(:run_at, :now + :delay_us) + :expires_us),
        :now, :enqueued_by, :unique_key, :tags, :headers, :limit_key)
ON CONFLICT (id) DO NOTHING
RETURNING created_at

-- name: insert_waiting [sqlite] Put one job, whose time has come, into its lane.
INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority, hold)
SELECT :queue, :tenant, :task,
       COALESCE(:run_at, :now + :delay_us) - :priority * (COALESCE((SELECT horizon_us FROM duly.queues WHERE name = :queue), :horizon) / 100),
       :id, COALESCE(:run_at, :now + :delay_us), :priority, :hold
WHERE COALESCE(:run_at, :now + :delay_us) <= :now

-- name: insert_scheduled [sqlite] Note one job for later.
INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, hold)
SELECT :id, COALESCE(:run_at, :now + :delay_us), :queue, :tenant, :task, :priority, :hold
WHERE COALESCE(:run_at, :now + :delay_us) > :now

-- name: clock Ask the database what time it is, and how a queue ages.
SELECT :now, COALESCE((SELECT horizon_us FROM duly.queues WHERE name = :queue::text), :horizon::bigint)

-- name: known_jobs [postgres] Which of these jobs are stored already: a repeated bulk enqueue asks this.
SELECT id FROM duly.jobs WHERE id = ANY (:ids::uuid[])

-- name: known_jobs [sqlite] Which of these jobs are stored already: a repeated bulk enqueue asks this.
SELECT id FROM duly.jobs WHERE id IN (SELECT value FROM json_each(:ids))

-- name: insert_jobs [postgres] Store many jobs that differ in id, arguments and unique key.
INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, retry, timeout_us, expires_at,
                       created_at, enqueued_by, unique_key, tags, headers, limit_key)
SELECT b.id, :task::text, :queue::text, :tenant::text, b.args::json, :priority::smallint, :max_attempts::integer,
       :retry::text, :timeout_us::bigint, :expires_at::bigint, :created_at::bigint, :enqueued_by::text,
       b.unique_key, :tags::text, :headers::text, b.limit_key
FROM unnest((SELECT :ids::uuid[]), :argses::text[], :unique_keys::text[], :limit_keys::text[]) AS b(id, args, unique_key, limit_key)

-- name: insert_jobs [sqlite] Store many jobs that differ in id, arguments and unique key.
INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, retry, timeout_us, expires_at,
                       created_at, enqueued_by, unique_key, tags, headers, limit_key)
SELECT json_extract(value, '$[0]'), :task, :queue, :tenant, json_extract(value, '$[1]'), :priority, :max_attempts,
       :retry, :timeout_us, :expires_at, :created_at, :enqueued_by, json_extract(value, '$[2]'), :tags, :headers, json_extract(value, '$[3]')
FROM json_each(:batch)

-- name: insert_waiting_many [postgres] Put many jobs of one rank into their lane.
INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority, hold)
SELECT :queue::text, :tenant::text, :task::text, :rank::bigint, id, :run_at::bigint, :priority::smallint, :hold::smallint
FROM unnest((SELECT :ids::uuid[])) AS b(id)

-- name: insert_waiting_many [sqlite] Put many jobs of one rank into their lane.
INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority, hold)
SELECT :queue, :tenant, :task, :rank, json_extract(value, '$[0]'), :run_at, :priority, :hold
FROM json_each(:batch)

-- name: insert_scheduled_many [postgres] Note many jobs for one time.
INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, hold)
SELECT id, :run_at::bigint, :queue::text, :tenant::text, :task::text, :priority::smallint, :hold::smallint
FROM unnest((SELECT :ids::uuid[])) AS b(id)

-- name: insert_scheduled_many [sqlite] Note many jobs for one time.
INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, hold)
SELECT json_extract(value, '$[0]'), :run_at, :queue, :tenant, :task, :priority, :hold
FROM json_each(:batch)

-- name: any_idle [postgres] Wake a sleeping worker, if there is one besides who says it. Runs after the enqueue has committed.
SELECT pg_notify(:channel::text, :payload::text) WHERE EXISTS (SELECT 1 FROM duly.workers WHERE idle AND id IS DISTINCT FROM :sender::uuid)

-- name: notify [postgres] Tell listening workers something, when this transaction commits.
SELECT pg_notify(:channel::text, :payload::text)

-- name: wake_addresses [sqlite] Where sleeping workers listen.
SELECT wake FROM duly.workers WHERE wake IS NOT NULL
