-- What `duly why` asks. Everything is found by key, by lane or among what runs now; nothing walks over what waits further than :n.

-- name: why_job One job, whatever place it is in, and how its queue goes.
SELECT j.id, j.task, j.queue, j.tenant, j.priority, j.max_attempts, j.created_at, j.expires_at, j.unique_key, j.limit_key,
       COALESCE(q.fair, true), q.horizon_us, :now, :lease_now
FROM duly.jobs j LEFT JOIN duly.queues q ON q.name = j.queue WHERE j.id = :id::uuid

-- name: why_places Every place that a job is in: one statement, so that one that moves is not missed.
SELECT 'scheduled' AS place, run_at, attempt, crashes, hold, NULL::bigint AS rank, 0::smallint AS suspect, NULL::uuid AS worker_id, NULL::bigint AS since,
       NULL::bigint AS leased_until, NULL::bigint AS deadline_at, NULL::bigint AS cancel_at, NULL::text AS cancel_reason, NULL::real AS progress,
       NULL::text AS progress_text, NULL::text AS reason, NULL::text AS detail, NULL::text AS mark
FROM duly.scheduled WHERE id = :id::uuid
UNION ALL
SELECT 'waiting', run_at, attempt, crashes, hold, rank, suspect, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM duly.waiting WHERE id = :id::uuid
UNION ALL
SELECT 'parked', run_at, attempt, crashes, hold, rank, 0, NULL, parked_at, NULL, NULL, NULL, NULL, NULL, NULL, reason, detail, mark
FROM duly.parked WHERE id = :id::uuid
UNION ALL
SELECT 'running', run_at, attempt, crashes, hold, NULL, 0, worker_id, claimed_at, leased_until, deadline_at, cancel_at, cancel_reason, progress,
       progress_text, NULL, NULL, NULL
FROM duly.running WHERE id = :id::uuid
UNION ALL
SELECT state, NULL, attempt, COALESCE(crashes, 0), COALESCE(hold, 0), NULL, 0, NULL, finished_at, NULL, NULL, NULL, NULL, NULL, NULL, reason, NULL, NULL
FROM duly.ended WHERE id = :id::uuid

-- name: why_last_run How the last run of a job ended.
SELECT attempt, outcome, started_at, finished_at, worker_id, error_kind, error FROM duly.runs WHERE job_id = :id::uuid ORDER BY token DESC LIMIT 1

-- part: why_gate_columns A gate: what it says and how it stands.
SELECT scope, name, slots, rate_n, rate_us, burst, refuses, spent_until, used, breaker, most_waiting, blocked_until, blocked_reason,
       paused_at, paused_until, paused_by, paused_reason
FROM duly.gates

-- name: why_gates The gates that a job passes, and what holds for the keys of its group.
@why_gate_columns
WHERE (scope = 'queue' AND name = :queue::text) OR (scope = 'task' AND name = :task::text) OR (scope = 'keys' AND name = :key_group::text)
   OR (scope IN ('tenant', 'minute', 'day') AND name = :tenant::text)

-- name: why_gates_of [postgres] The gates of the tasks and tenants of some lanes.
@why_gate_columns
WHERE (scope = 'task' AND name = ANY (:tasks::text[])) OR (scope IN ('tenant', 'minute', 'day') AND name = ANY (:tenants::text[]))

-- name: why_gates_of [sqlite] The gates of the tasks and tenants of some lanes.
@why_gate_columns
WHERE (scope = 'task' AND name IN (SELECT json_extract(value, '$[1]') FROM json_each(:lanes)))
   OR (scope IN ('tenant', 'minute', 'day') AND name IN (SELECT json_extract(value, '$[0]') FROM json_each(:lanes)))

-- name: why_all_gates Every gate that can hold something.
@why_gate_columns
WHERE slots IS NOT NULL OR rate_n IS NOT NULL OR blocked_until IS NOT NULL OR paused_at IS NOT NULL OR breaker IS NOT NULL
ORDER BY scope, name LIMIT :n::integer

-- name: why_held_by_gate Runs under a gate whose lease holds, the first to have started first; and how many there are.
SELECT id, 'running', tenant, task, worker_id, claimed_at, leased_until - :lease_now, count(*) OVER () FROM duly.running
WHERE leased_until > :lease_now AND CASE :scope::text WHEN 'task' THEN task WHEN 'queue' THEN queue ELSE tenant END = :name::text
ORDER BY claimed_at, id LIMIT :n::integer

-- name: why_key A key and how it stands.
SELECT name, own_slots, CASE WHEN own_rate THEN rate_n END, CASE WHEN own_rate THEN rate_us END, burst, spent_until, opens_at, breaker_state,
       tries, failures, blocked_until, blocked_reason, paused_at, paused_until, paused_by, paused_reason
FROM duly.keys WHERE name = :key::text

-- name: why_held_by_key Jobs that were let into their lanes with a key, and have not ended; those that run first.
SELECT a.job_id, CASE WHEN r.id IS NULL THEN 'waiting' ELSE 'running' END, COALESCE(r.tenant, w.tenant), COALESCE(r.task, w.task), r.worker_id,
       COALESCE(r.claimed_at, w.run_at), r.leased_until - :lease_now, count(*) OVER ()
FROM duly.admitted a LEFT JOIN duly.running r ON r.id = a.job_id LEFT JOIN duly.waiting w ON w.id = a.job_id
WHERE a.key = :key::text AND (r.id IS NOT NULL OR w.id IS NOT NULL)
ORDER BY 2, 6, 1 LIMIT :n::integer

-- name: why_ahead_by_key How many jobs with the same key are parked before one, counted no further than :n.
SELECT count(*) FROM (SELECT 1 FROM duly.parked WHERE mark = :key::text AND rank IS NOT NULL AND (rank, id) < (:rank::bigint, :id::uuid)
                      ORDER BY rank, id LIMIT :n::integer) p

-- name: why_holder Where another job is, and who runs it.
SELECT j.id, COALESCE((SELECT 'running' FROM duly.running r WHERE r.id = j.id), (SELECT 'waiting' FROM duly.waiting w WHERE w.id = j.id),
                      (SELECT 'scheduled' FROM duly.scheduled s WHERE s.id = j.id), (SELECT 'parked' FROM duly.parked p WHERE p.id = j.id),
                      (SELECT e.state FROM duly.ended e WHERE e.id = j.id), 'nowhere'),
       j.tenant, j.task, r.worker_id, COALESCE(r.claimed_at, j.created_at), r.leased_until - :lease_now, 1
FROM duly.jobs j LEFT JOIN duly.running r ON r.id = j.id WHERE j.id = :id::uuid

-- name: why_load What each worker holds: of which task, from which queue.
SELECT worker_id, task, queue, count(*) FROM duly.running GROUP BY worker_id, task, queue

-- name: why_ahead [postgres] In each of some lanes, how many jobs stand before a place, counted no further than :n.
SELECT l.tenant, l.task, c.n FROM unnest(:tenants::text[], :tasks::text[]) AS l(tenant, task) CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM duly.waiting w WHERE w.queue = :queue::text AND w.suspect = :suspect::smallint AND w.tenant = l.tenant AND w.task = l.task
          AND (w.rank, w.id) < (:rank::bigint, :id::uuid) ORDER BY w.rank, w.id LIMIT :n::integer) x) c

-- name: why_ahead [sqlite] In each of some lanes, how many jobs stand before a place, counted no further than :n.
SELECT json_extract(l.value, '$[0]'), json_extract(l.value, '$[1]'), (
    SELECT count(*) FROM (
        SELECT 1 FROM duly.waiting w WHERE w.queue = :queue AND w.suspect = :suspect AND w.tenant = json_extract(l.value, '$[0]')
          AND w.task = json_extract(l.value, '$[1]') AND (w.rank, w.id) < (:rank, :id) ORDER BY w.rank, w.id LIMIT :n))
FROM json_each(:lanes) l

-- name: why_first The first jobs of a lane.
SELECT id FROM duly.waiting WHERE queue = :queue::text AND suspect = :suspect::smallint AND tenant = :tenant::text AND task = :task::text
ORDER BY rank, id LIMIT :n::integer

-- name: why_lanes [postgres] In each of some lanes: how many wait, counted no further than :n, which is the first, and since when that is due.
SELECT l.tenant, l.task, c.n, h.id, h.run_at FROM unnest(:tenants::text[], :tasks::text[]) AS l(tenant, task) CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM duly.waiting w WHERE w.queue = :queue::text AND w.suspect = :suspect::smallint AND w.tenant = l.tenant AND w.task = l.task
        ORDER BY w.rank, w.id LIMIT :n::integer) x) c
CROSS JOIN LATERAL (
    SELECT w.id, w.run_at FROM duly.waiting w
    WHERE w.queue = :queue::text AND w.suspect = :suspect::smallint AND w.tenant = l.tenant AND w.task = l.task
    ORDER BY w.rank, w.id LIMIT 1) h

-- name: why_lanes [sqlite] In each of some lanes: how many wait, counted no further than :n, which is the first, and since when that is due.
SELECT l.tenant, l.task, l.n, l.id, (SELECT w.run_at FROM duly.waiting w WHERE w.id = l.id) FROM (
    SELECT json_extract(e.value, '$[0]') AS tenant, json_extract(e.value, '$[1]') AS task, (
        SELECT count(*) FROM (
            SELECT 1 FROM duly.waiting w WHERE w.queue = :queue AND w.suspect = :suspect AND w.tenant = json_extract(e.value, '$[0]')
              AND w.task = json_extract(e.value, '$[1]') ORDER BY w.rank, w.id LIMIT :n)) AS n, (
        SELECT w.id FROM duly.waiting w WHERE w.queue = :queue AND w.suspect = :suspect AND w.tenant = json_extract(e.value, '$[0]')
          AND w.task = json_extract(e.value, '$[1]') ORDER BY w.rank, w.id LIMIT 1) AS id
    FROM json_each(:lanes) e) l
WHERE l.id IS NOT NULL

-- name: why_next_queue The next queue in which jobs wait: one index probe.
SELECT queue FROM duly.waiting WHERE queue > :queue::text ORDER BY queue LIMIT 1

-- name: why_rate What a queue, a tenant in it and a lane of it did since some minute, and since when that was counted.
SELECT COALESCE(sum(runs), 0)::bigint, COALESCE(sum(CASE WHEN tenant = :tenant::text THEN runs END), 0)::bigint,
       COALESCE(sum(CASE WHEN tenant = :tenant::text AND task = :task::text THEN runs END), 0)::bigint, min(period_at)
FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :since_at::bigint AND queue = :queue::text

-- name: why_next_parked_task The next task of which jobs are parked for the same reason.
SELECT reason, task FROM duly.parked WHERE reason = :reason::text AND task > :task::text ORDER BY reason, task LIMIT 1

-- name: why_next_parked_reason The next reason for which jobs are parked.
SELECT reason, task FROM duly.parked WHERE reason > :reason::text ORDER BY reason, task LIMIT 1

-- name: why_parked Of the first :n jobs of a task that are parked for a reason: how many by queue and by what they wait for, and one of them.
SELECT p.queue, p.tenant, CASE WHEN :reason::text IN ('key', 'arrived') THEN p.mark END, count(*), min(p.parked_at), min(p.id::text), min(p.detail),
       sum(count(*)) OVER ()
FROM (SELECT id, queue, tenant, mark, parked_at, detail FROM duly.parked WHERE reason = :reason::text AND task = :task::text
      ORDER BY parked_at LIMIT :n::integer) p
WHERE (:queue::text IS NULL OR p.queue = :queue::text) AND (:tenant::text IS NULL OR p.tenant = :tenant::text)
GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT :groups::integer

-- name: why_scheduled Of the :n jobs that are due next: how many by queue and by what they wait for, until when the first, and one of them.
SELECT s.queue, CASE WHEN s.run_at <= :now THEN 'late' WHEN s.hold IN (4, 5) THEN 'recurs' WHEN s.attempt > 0 THEN 'retry' ELSE 'not_due' END,
       count(*), min(s.run_at), min(s.id::text)
FROM (SELECT id, run_at, queue, tenant, attempt, hold FROM duly.scheduled ORDER BY run_at, id LIMIT :n::integer) s
WHERE (:queue::text IS NULL OR s.queue = :queue::text) AND (:tenant::text IS NULL OR s.tenant = :tenant::text)
GROUP BY 1, 2 ORDER BY 1, 2

-- name: why_lapsed Runs whose lease has passed, by queue: how many, for how long, one of them.
SELECT queue, count(*), :lease_now - min(leased_until), min(id::text) FROM duly.running
WHERE leased_until <= :lease_now AND (:queue::text IS NULL OR queue = :queue::text) AND (:tenant::text IS NULL OR tenant = :tenant::text)
GROUP BY queue ORDER BY queue

-- name: why_clock What time it is.
SELECT :now, :lease_now
