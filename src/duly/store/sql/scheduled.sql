-- name: promote [postgres] Put jobs whose time has come into their lanes; says into which.
WITH due AS MATERIALIZED (
    SELECT ctid AS at FROM duly.scheduled WHERE run_at <= :now AND hold <> 5 ORDER BY run_at, id LIMIT :n::integer FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM duly.scheduled WHERE ctid = ANY (ARRAY(SELECT at FROM due)) RETURNING *
), keyed AS (
    SELECT t.*, (SELECT j.limit_key FROM duly.jobs j WHERE j.id = t.id) AS limit_key FROM taken t
), lane AS (
    INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold)
    SELECT t.queue, CASE WHEN t.crashes > 1 THEN 1 ELSE 0 END, t.tenant, t.task,
           t.run_at - t.priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = t.queue), :horizon::bigint) / 100),
           t.id, t.run_at, t.priority, t.token, t.attempt, t.crashes, t.hold
    FROM keyed t WHERE t.limit_key IS NULL RETURNING queue, tenant, task, rank
), aside AS (
    INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, token, attempt, crashes, hold, parked_at, reason, mark, rank)
    SELECT t.id, t.queue, t.tenant, t.task, t.run_at, t.priority, t.token, t.attempt, t.crashes, t.hold, :now, 'arrived', t.limit_key,
           t.run_at - t.priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = t.queue), :horizon::bigint) / 100)
    FROM keyed t WHERE t.limit_key IS NOT NULL
)
SELECT queue, tenant, task, min(rank), count(*) FROM lane GROUP BY queue, tenant, task

-- name: due_scheduled [sqlite] Jobs whose time has come.
SELECT json_group_array(id) FROM (SELECT id FROM duly.scheduled WHERE run_at <= :now AND hold <> 5 ORDER BY run_at, id LIMIT :n)

-- name: promote_waiting [sqlite] Put jobs whose time has come into their lanes.
INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold)
SELECT t.queue, t.crashes > 1, t.tenant, t.task,
       t.run_at - t.priority * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = t.queue), :horizon) / 100),
       t.id, t.run_at, t.priority, t.token, t.attempt, t.crashes, t.hold
FROM json_each(:ids) e CROSS JOIN duly.scheduled t ON t.id = e.value
WHERE NOT EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = t.id AND j.limit_key IS NOT NULL)

-- name: promote_aside [sqlite] Jobs with keys whose time has come stand aside until there is room.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, token, attempt, crashes, hold, parked_at, reason, mark, rank)
SELECT t.id, t.queue, t.tenant, t.task, t.run_at, t.priority, t.token, t.attempt, t.crashes, t.hold, :now, 'arrived', j.limit_key,
       t.run_at - t.priority * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = t.queue), :horizon) / 100)
FROM json_each(:ids) e CROSS JOIN duly.scheduled t ON t.id = e.value CROSS JOIN duly.jobs j ON j.id = t.id WHERE j.limit_key IS NOT NULL

-- name: promote_lanes [sqlite] Which lanes the promoted jobs go to.
SELECT t.queue, t.tenant, t.task,
       min(t.run_at - t.priority * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = t.queue), :horizon) / 100)), count(*)
FROM json_each(:ids) e CROSS JOIN duly.scheduled t ON t.id = e.value
WHERE NOT EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = t.id AND j.limit_key IS NOT NULL) GROUP BY t.queue, t.tenant, t.task

-- name: leave_scheduled [sqlite] Take promoted jobs out of the schedule.
DELETE FROM duly.scheduled WHERE id IN (SELECT value FROM json_each(:ids))

-- part: soonest [postgres] When the next scheduled job is due, a gate opens, or a key; long ago if a job with a key has just come.
LEAST((SELECT min(run_at) FROM duly.scheduled), (SELECT min(paused_until) FROM duly.gates WHERE paused_at IS NOT NULL),
      (SELECT min(blocked_until) FROM duly.gates WHERE blocked_until IS NOT NULL),
      (SELECT min(opens_at) FROM duly.keys WHERE opens_at IS NOT NULL),
      (SELECT 0 FROM duly.parked WHERE reason = 'arrived' LIMIT 1), (SELECT 0 FROM duly.admitted WHERE look LIMIT 1))

-- part: soonest [sqlite] When the next scheduled job is due, a gate opens, or a key; long ago if a job with a key has just come.
(SELECT min(at) FROM (
    SELECT min(run_at) AS at FROM duly.scheduled
    UNION ALL SELECT min(paused_until) FROM duly.gates WHERE paused_at IS NOT NULL
    UNION ALL SELECT min(blocked_until) FROM duly.gates WHERE blocked_until IS NOT NULL
    UNION ALL SELECT min(opens_at) FROM duly.keys WHERE opens_at IS NOT NULL
    UNION ALL SELECT * FROM (SELECT 0 FROM duly.parked WHERE reason = 'arrived' LIMIT 1)
    UNION ALL SELECT * FROM (SELECT 0 FROM duly.admitted INDEXED BY duly.admitted_to_look_at WHERE look LIMIT 1)))

-- name: next_due How long until there is something to do for who promotes.
SELECT
@soonest
- :now
