-- name: lanes [postgres] Which lanes of a queue have jobs, and the rank at the head of each: one index probe per lane.
WITH RECURSIVE lane AS (
    (SELECT tenant, task, rank FROM duly.waiting
     WHERE queue = :queue::text AND suspect = :suspect::smallint AND (tenant, task) > (:tenant::text, :task::text)
     ORDER BY queue, suspect, tenant, task, rank, id LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.task, n.rank FROM lane l CROSS JOIN LATERAL (
        SELECT w.tenant, w.task, w.rank FROM duly.waiting w
        WHERE w.queue = :queue::text AND w.suspect = :suspect::smallint AND (w.tenant, w.task) > (l.tenant, l.task)
        ORDER BY w.queue, w.suspect, w.tenant, w.task, w.rank, w.id LIMIT 1) n
)
SELECT tenant, task, rank FROM lane LIMIT :n::integer

-- name: next_task [sqlite] The next lane of the same tenant that has jobs, and the rank at its head.
SELECT tenant, task, rank FROM duly.waiting
WHERE queue = :queue AND suspect = :suspect AND tenant = :tenant AND task > :task
ORDER BY queue, suspect, tenant, task, rank, id LIMIT 1

-- name: next_tenant [sqlite] The first lane of the next tenant that has jobs. (By (tenant, task) > (a, b) SQLite would walk lane a, b.)
SELECT tenant, task, rank FROM duly.waiting
WHERE queue = :queue AND suspect = :suspect AND tenant > :tenant
ORDER BY queue, suspect, tenant, task, rank, id LIMIT 1

-- name: claim [postgres] Take the first jobs of some lanes, lowest rank first, and lease them to a worker.
WITH closed AS MATERIALIZED (
    SELECT scope, name FROM duly.gates WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)
), lane AS (
    SELECT * FROM unnest(:tenants::text[], :tasks::text[], :from_ranks::bigint[], :from_ids::uuid[]) AS l(tenant, task, from_rank, from_id)
    WHERE NOT EXISTS (SELECT 1 FROM closed c WHERE (c.scope = 'queue' AND c.name = :queue::text)
                      OR (c.scope = 'task' AND c.name = l.task) OR (c.scope = 'tenant' AND c.name = l.tenant))
), quota AS MATERIALIZED (
    SELECT h.tenant, h.task, h.from_rank, h.from_id, count(*) AS n FROM (
        SELECT l.tenant, l.task, l.from_rank, l.from_id FROM lane l CROSS JOIN LATERAL (
            SELECT rank, id FROM duly.waiting
            WHERE queue = :queue::text AND suspect = :suspect::smallint AND tenant = l.tenant AND task = l.task
              AND (rank, id) >= (l.from_rank, l.from_id)
            ORDER BY rank, id LIMIT :n::integer) w
        ORDER BY w.rank, w.id LIMIT :n::integer) h
    GROUP BY h.tenant, h.task, h.from_rank, h.from_id
), head AS MATERIALIZED (
@lock_quotas
@lease_heads

-- name: claim_shares [postgres] The same with a share for each tenant: the first jobs of each, as many as its share.
WITH closed AS MATERIALIZED (
    SELECT scope, name FROM duly.gates WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)
), lane AS (
    SELECT * FROM unnest(:tenants::text[], :tasks::text[], :from_ranks::bigint[], :from_ids::uuid[], :shares::integer[])
        AS l(tenant, task, from_rank, from_id, share)
    WHERE NOT EXISTS (SELECT 1 FROM closed c WHERE (c.scope = 'queue' AND c.name = :queue::text)
                      OR (c.scope = 'task' AND c.name = l.task) OR (c.scope = 'tenant' AND c.name = l.tenant))
), quota AS MATERIALIZED (
    SELECT h.tenant, h.task, h.from_rank, h.from_id, count(*) AS n FROM (
        SELECT l.tenant, l.task, l.from_rank, l.from_id, l.share, row_number() OVER (PARTITION BY l.tenant ORDER BY w.rank, w.id) AS place
        FROM lane l CROSS JOIN LATERAL (
            SELECT rank, id FROM duly.waiting
            WHERE queue = :queue::text AND suspect = :suspect::smallint AND tenant = l.tenant AND task = l.task
              AND (rank, id) >= (l.from_rank, l.from_id)
            ORDER BY rank, id LIMIT l.share) w) h
    WHERE h.place <= h.share GROUP BY h.tenant, h.task, h.from_rank, h.from_id
), head AS MATERIALIZED (
@lock_quotas
@lease_heads

-- name: claim_lane [postgres] The same for one lane, where most claims of a quiet system go: half the work.
WITH head AS MATERIALIZED (
    SELECT ctid AS at FROM duly.waiting
    WHERE queue = :queue::text AND suspect = :suspect::smallint AND tenant = :tenant::text AND task = :task::text
      AND (rank, id) >= (:from_rank::bigint, :from_id::uuid)
      AND NOT EXISTS (SELECT 1 FROM duly.gates g WHERE g.paused_at IS NOT NULL AND (g.paused_until IS NULL OR g.paused_until > :now)
                      AND ((g.scope = 'queue' AND g.name = :queue::text) OR (g.scope = 'task' AND g.name = :task::text)
                           OR (g.scope = 'tenant' AND g.name = :tenant::text)))
    ORDER BY rank, id LIMIT :n::integer FOR UPDATE SKIP LOCKED
@lease_heads

-- part: lock_quotas [postgres] The first rows of each lane, as many as its quota, those that others lock left out.
    SELECT w.at FROM quota q CROSS JOIN LATERAL (
        SELECT ctid AS at FROM duly.waiting
        WHERE queue = :queue::text AND suspect = :suspect::smallint AND tenant = q.tenant AND task = q.task
          AND (rank, id) >= (q.from_rank, q.from_id)
        ORDER BY rank, id LIMIT q.n FOR UPDATE SKIP LOCKED) w

-- part: lease_heads [postgres] Take the rows of `head` out of their lanes and lease the jobs.
), taken AS (
    DELETE FROM duly.waiting WHERE ctid = ANY (ARRAY(SELECT at FROM head)) RETURNING *
), job AS (
    SELECT t.id, t.token + 1 AS token, t.attempt + 1 AS attempt, t.crashes, t.queue, t.tenant, t.task, t.priority,
           t.run_at, t.hold, t.rank, j.args, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at, j.headers
    FROM taken t JOIN duly.jobs j ON j.id = t.id
), leased AS (
    INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited,
                              worker_id, claimed_at, leased_until, deadline_at)
    SELECT id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, :limited::boolean,
           :worker_id::uuid, :now, :lease_now + :lease_us::bigint, :now + timeout_us + :lease_us::bigint
    FROM job
)
SELECT id, token, attempt, crashes, queue, tenant, task, priority, run_at, hold, args::text, max_attempts, retry,
       timeout_us, expires_at, created_at, headers, :now, rank
FROM job ORDER BY rank, id

-- name: head_of_lane [sqlite] The first jobs of one lane, as a JSON array of [rank, id].
SELECT json_group_array(json_array(rank, id)) FROM (
    SELECT rank, id FROM duly.waiting
    WHERE queue = :queue AND suspect = :suspect AND tenant = :tenant AND task = :task AND (rank, id) >= (:from_rank, :from_id)
    ORDER BY rank, id LIMIT :n)

-- name: lease [sqlite] Lease the picked jobs to a worker.
INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited,
                          worker_id, claimed_at, leased_until, deadline_at)
SELECT w.id, w.token + 1, w.queue, w.tenant, w.task, w.priority, w.run_at, w.attempt + 1, w.crashes, w.hold, :limited,
       :worker_id, :now, :lease_now + :lease_us, :now + j.timeout_us + :lease_us
FROM json_each(:ids) e CROSS JOIN duly.waiting w ON w.id = e.value CROSS JOIN duly.jobs j ON j.id = w.id

-- name: leave_lane [sqlite] Take the picked jobs out of their lanes.
DELETE FROM duly.waiting WHERE id IN (SELECT value FROM json_each(:ids))

-- name: leased_jobs [sqlite] What was just leased, in the order of the ids, as one JSON array, so that one step fetches it.
SELECT json_group_array(json_array(r.id, r.token, r.attempt, r.crashes, r.queue, r.tenant, r.task, r.priority, r.run_at,
       r.hold, j.args, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at, j.headers, r.claimed_at))
FROM json_each(:ids) e CROSS JOIN duly.running r ON r.id = e.value CROSS JOIN duly.jobs j ON j.id = r.id

-- name: lock_limit [postgres] Hold a task's limit until this transaction ends. A statement of its own: what counts comes after.
SELECT slots FROM duly.limits WHERE scope = 'task' AND name = :task::text FOR UPDATE

-- name: lock_limit [sqlite] Read a task's limit; the write lock is already ours.
SELECT slots FROM duly.limits WHERE scope = 'task' AND name = :task

-- name: count_limited How many live leases a limited task has.
SELECT count(*) FROM duly.running WHERE task = :task::text AND limited AND leased_until > :lease_now

-- name: set_limit State a task's limit.
INSERT INTO duly.limits (scope, name, slots) VALUES ('task', :task::text, :slots::integer)
ON CONFLICT (scope, name) DO UPDATE SET slots = excluded.slots
