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
SELECT tenant, task, rank FROM lane LIMIT (SELECT :n::integer)

-- name: lanes_and_suspects [postgres] The same from one lane on, and then those of jobs that run alone.
WITH RECURSIVE lane AS (
    (SELECT suspect, tenant, task, rank FROM duly.waiting
     WHERE queue = :queue::text AND (suspect, tenant, task) > (0, :tenant::text, :task::text)
     ORDER BY queue, suspect, tenant, task, rank, id LIMIT 1)
    UNION ALL
    SELECT n.suspect, n.tenant, n.task, n.rank FROM lane l CROSS JOIN LATERAL (
        SELECT w.suspect, w.tenant, w.task, w.rank FROM duly.waiting w
        WHERE w.queue = :queue::text AND (w.suspect, w.tenant, w.task) > (l.suspect, l.tenant, l.task)
        ORDER BY w.queue, w.suspect, w.tenant, w.task, w.rank, w.id LIMIT 1) n
)
SELECT suspect, tenant, task, rank FROM lane LIMIT (SELECT :n::integer)

-- name: next_task [sqlite] The next lane of the same tenant that has jobs, and the rank at its head.
SELECT tenant, task, rank FROM duly.waiting
WHERE queue = :queue AND suspect = :suspect AND tenant = :tenant AND task > :task
ORDER BY queue, suspect, tenant, task, rank, id LIMIT 1

-- name: next_tenant [sqlite] The first lane of the next tenant that has jobs. (By (tenant, task) > (a, b) SQLite would walk lane a, b.)
SELECT tenant, task, rank FROM duly.waiting
WHERE queue = :queue AND suspect = :suspect AND tenant > :tenant
ORDER BY queue, suspect, tenant, task, rank, id LIMIT 1

-- part: open_lane [postgres] A lane that nothing bars: no gate that is closed, and no limit but those the claim holds.
NOT EXISTS (
    SELECT 1 FROM duly.gates g
    WHERE (g.scope, g.name) IN (('queue', :queue::text), ('task', l.task), ('tenant', l.tenant), ('minute', l.tenant), ('day', l.tenant))
      AND ((g.paused_at IS NOT NULL AND (g.paused_until IS NULL OR g.paused_until > :now)) OR g.blocked_until > :now
           OR ((g.slots IS NOT NULL OR g.meters_keys OR (g.rate_n IS NOT NULL AND NOT g.refuses)) AND g.scope || ' ' || g.name <> ALL (:held::text[]))))

-- name: claim [postgres] Take the first jobs of some lanes, lowest rank first, and lease them to a worker.
WITH lane AS (
    SELECT * FROM unnest((SELECT :tenants::text[]), :tasks::text[], :from_ranks::bigint[], :from_ids::uuid[]) AS l(tenant, task, from_rank, from_id)
    WHERE
@open_lane
), quota AS MATERIALIZED (
    SELECT h.tenant, h.task, h.from_rank, h.from_id, count(*) AS n FROM (
        SELECT l.tenant, l.task, l.from_rank, l.from_id FROM lane l CROSS JOIN LATERAL (
            SELECT rank, id FROM duly.waiting
            WHERE queue = :queue::text AND suspect = :suspect::smallint AND tenant = l.tenant AND task = l.task
              AND (rank, id) >= (l.from_rank, l.from_id)
            ORDER BY rank, id LIMIT (SELECT :n::integer)) w
        ORDER BY w.rank, w.id LIMIT (SELECT :n::integer)) h
    GROUP BY h.tenant, h.task, h.from_rank, h.from_id
), head AS MATERIALIZED (
@lock_quotas
@lease_heads
@leased_heads

-- name: claim_shares [postgres] The same with a share for each tenant: the first jobs of each, as many as its share.
WITH lane AS (
    SELECT * FROM unnest((SELECT :tenants::text[]), :tasks::text[], :from_ranks::bigint[], :from_ids::uuid[], :shares::integer[])
        AS l(tenant, task, from_rank, from_id, share)
    WHERE
@open_lane
), quota AS MATERIALIZED (
    SELECT h.tenant, h.task, h.from_rank, h.from_id, count(*) AS n FROM (
@share_heads
    ) h WHERE h.place <= h.share GROUP BY h.tenant, h.task, h.from_rank, h.from_id
), head AS MATERIALIZED (
@lock_quotas
@lease_heads
@leased_heads

-- name: claim_gated [postgres] The same through gates that have limits: these are held, and no more is taken than there is room for.
WITH room AS MATERIALIZED (
    SELECT n, at_us FROM duly.gate_room(:gate_scopes::text[], :gate_names::text[], :ended_ids::uuid[], :ended_tokens::bigint[], :n::integer, :now, :lease_now, :lease_us::bigint)
), lane AS (
    SELECT * FROM unnest((SELECT :tenants::text[]), :tasks::text[], :from_ranks::bigint[], :from_ids::uuid[], :shares::integer[])
        AS l(tenant, task, from_rank, from_id, share)
    WHERE (SELECT n FROM room) > 0 AND
@open_lane
), quota AS MATERIALIZED (
    SELECT t.tenant, t.task, t.from_rank, t.from_id, count(*) AS n FROM (SELECT * FROM (
@share_heads
        ) h WHERE h.place <= h.share ORDER BY CASE WHEN :fair::boolean THEN h.place::real / h.share ELSE 0 END, h.rank, h.id
        LIMIT (SELECT n FROM room)) t
    GROUP BY t.tenant, t.task, t.from_rank, t.from_id
), head AS MATERIALIZED (
@lock_quotas
@lease_heads
@spend
@leased_heads

-- name: claim_gated_lane [postgres] The same for one lane, where most limits are.
WITH room AS MATERIALIZED (
    SELECT n, at_us FROM duly.gate_room(:gate_scopes::text[], :gate_names::text[], :ended_ids::uuid[], :ended_tokens::bigint[], :n::integer, :now, :lease_now, :lease_us::bigint)
), head AS MATERIALIZED (
@head_of_open_lane
    ORDER BY rank, id LIMIT (SELECT n FROM room) FOR UPDATE SKIP LOCKED
@lease_heads
@spend
@leased_heads

-- part: share_heads [postgres] The first rows of each tenant's lanes, numbered within the tenant; within all lanes where tenants do not share.
        SELECT l.tenant, l.task, l.from_rank, l.from_id, l.share, w.rank, w.id,
               row_number() OVER (PARTITION BY CASE WHEN :fair::boolean THEN l.tenant END ORDER BY w.rank, w.id) AS place
        FROM lane l CROSS JOIN LATERAL (
            SELECT rank, id FROM duly.waiting
            WHERE queue = :queue::text AND suspect = :suspect::smallint AND tenant = l.tenant AND task = l.task
              AND (rank, id) >= (l.from_rank, l.from_id)
            ORDER BY rank, id LIMIT l.share) w

-- part: spend [postgres] What starts now is taken off the rates that were held, and then (as all lock them) off the rates of the jobs' keys.
), spent AS (
    UPDATE duly.gates g SET
        spent_until = CASE WHEN g.burst IS NULL THEN r.at_us - r.at_us % g.rate_us
                           ELSE GREATEST(g.spent_until, r.at_us) + ceil(t.n::numeric * g.rate_us / g.rate_n)::bigint END,
        used = CASE WHEN g.burst IS NOT NULL THEN 0 WHEN g.spent_until = r.at_us - r.at_us % g.rate_us THEN g.used + t.n ELSE t.n END
    FROM room r, (SELECT count(*)::integer AS n FROM taken) t
    WHERE t.n > 0 AND g.rate_n IS NOT NULL AND NOT g.refuses
      AND (g.scope, g.name) IN (SELECT * FROM unnest((SELECT :gate_scopes::text[]), :gate_names::text[]))
    RETURNING 1
), started AS MATERIALIZED (
    SELECT k.name, s.n FROM (SELECT limit_key AS name, count(*) AS n FROM job WHERE limit_key IS NOT NULL GROUP BY limit_key) s
    JOIN duly.keys k ON k.name = s.name WHERE k.rate_n IS NOT NULL AND (SELECT count(*) FROM spent) >= 0 ORDER BY k.name FOR UPDATE OF k
), metered AS (
    UPDATE duly.keys k SET spent_until = GREATEST(k.spent_until, r.at_us) + ceil(s.n::numeric * k.rate_us / k.rate_n)::bigint
    FROM started s, room r WHERE k.name = s.name

-- name: claim_lane [postgres] The same for one lane, where most claims of a quiet system go: half the work.
WITH head AS MATERIALIZED (
@head_of_open_lane
    ORDER BY rank, id LIMIT (SELECT :n::integer) FOR UPDATE SKIP LOCKED
@lease_heads
@leased_heads

-- part: head_of_open_lane [postgres] The rows of one lane from its cursor on, if nothing bars it: no gate that is closed, and no limit but those the claim holds.
    SELECT ctid AS at FROM duly.waiting
    WHERE queue = :queue::text AND suspect = :suspect::smallint AND tenant = :tenant::text AND task = :task::text
      AND (rank, id) >= (:from_rank::bigint, :from_id::uuid) AND NOT EXISTS (
        SELECT 1 FROM duly.gates g
        WHERE (g.scope, g.name) IN (('queue', :queue::text), ('task', :task::text), ('tenant', :tenant::text), ('minute', :tenant::text), ('day', :tenant::text))
          AND ((g.paused_at IS NOT NULL AND (g.paused_until IS NULL OR g.paused_until > :now)) OR g.blocked_until > :now
               OR ((g.slots IS NOT NULL OR g.meters_keys OR (g.rate_n IS NOT NULL AND NOT g.refuses)) AND g.scope || ' ' || g.name <> ALL (:held::text[]))))

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
           t.run_at, t.hold, t.rank, j.args, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at, j.headers, j.limit_key
    FROM taken t JOIN duly.jobs j ON j.id = ANY (ARRAY[t.id])
), leased AS (
    INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited,
                              worker_id, claimed_at, leased_until, deadline_at)
    SELECT id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, :limited::smallint,
           :worker_id::uuid, (SELECT :now::bigint), (SELECT :lease_now::bigint) + :lease_us::bigint,
           timeout_us + :lease_us::bigint + (SELECT :now::bigint)
    FROM job

-- part: leased_heads [postgres] What was leased. (As args::text large arguments would be sorted, kept and spilled to the disk with the rows.)
)
SELECT id, token, attempt, crashes, queue, tenant, task, priority, run_at, hold, args, max_attempts, retry,
       timeout_us, expires_at, created_at, headers, (SELECT :now::bigint), limit_key, rank
FROM job ORDER BY rank, id

-- name: head_of_lane [sqlite] The first jobs of one lane, as a JSON array of [rank, id].
SELECT json_group_array(json_array(rank, id)) FROM (
    SELECT rank, id FROM duly.waiting
    WHERE queue = :queue AND suspect = :suspect AND tenant = :tenant AND task = :task AND (rank, id) >= (:from_rank, :from_id)
    ORDER BY rank, id LIMIT :n)

-- part: leasing_from_lane [sqlite] What a claim lays out in a table of this connection, to take it from there: jobs that wait, as they will run.
INSERT INTO duly.leasing (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, rank,
                          args, max_attempts, retry, timeout_us, expires_at, created_at, headers, limit_key)
SELECT w.id, w.token + 1, w.queue, w.tenant, w.task, w.priority, w.run_at, w.attempt + 1, w.crashes, w.hold, w.rank,
       j.args, j.max_attempts, j.retry, j.timeout_us, j.expires_at, j.created_at, j.headers, j.limit_key

-- name: pick_lane [sqlite] The first jobs of one lane.
@leasing_from_lane
FROM (SELECT * FROM duly.waiting
      WHERE queue = :queue AND suspect = :suspect AND tenant = :tenant AND task = :task AND (rank, id) >= (:from_rank, :from_id)
      ORDER BY rank, id LIMIT :n) w CROSS JOIN duly.jobs j ON j.id = w.id

-- name: pick_jobs [sqlite] The jobs that were chosen from several lanes.
@leasing_from_lane
FROM json_each(:ids) e CROSS JOIN duly.waiting w ON w.id = e.value CROSS JOIN duly.jobs j ON j.id = w.id

-- name: lease [sqlite] Lease the picked jobs to a worker.
INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited,
                          worker_id, claimed_at, leased_until, deadline_at)
SELECT id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, :limited,
       :worker_id, :now, :lease_now + :lease_us, :now + timeout_us + :lease_us FROM duly.leasing

-- name: leave_lane [sqlite] Take the picked jobs out of their lanes.
DELETE FROM duly.waiting WHERE id IN (SELECT id FROM duly.leasing)

-- name: leased_jobs [sqlite] What was just leased, in its order, as one JSON array, so that one step fetches it.
SELECT json_group_array(json_array(id, token, attempt, crashes, queue, tenant, task, priority, run_at,
       hold, args, max_attempts, retry, timeout_us, expires_at, created_at, headers, :now, limit_key, rank))
FROM (SELECT * FROM duly.leasing ORDER BY rowid)

-- name: clear_leasing [sqlite] Make room for the next.
DELETE FROM duly.leasing

-- name: open_lanes [sqlite] Which of some lanes nothing bars: no gate that is closed, and no limit but those the claim holds.
SELECT l.key FROM json_each(:lanes) l WHERE NOT EXISTS (
    SELECT 1 FROM (SELECT 'queue' AS scope, :queue AS name UNION ALL SELECT 'task', json_extract(l.value, '$[1]')
                   UNION ALL SELECT 'tenant', json_extract(l.value, '$[0]') UNION ALL SELECT 'minute', json_extract(l.value, '$[0]')
                   UNION ALL SELECT 'day', json_extract(l.value, '$[0]')) s
    CROSS JOIN duly.gates g ON g.scope = s.scope AND g.name = s.name
    WHERE (g.paused_at IS NOT NULL AND (g.paused_until IS NULL OR g.paused_until > :now)) OR g.blocked_until > :now
       OR ((g.slots IS NOT NULL OR g.meters_keys OR (g.rate_n IS NOT NULL AND NOT g.refuses))
           AND g.scope || ' ' || g.name NOT IN (SELECT value FROM json_each(:held))))

-- name: any_gate [sqlite] Whether there is any gate at all: mostly not.
SELECT 1 FROM duly.gates LIMIT 1
