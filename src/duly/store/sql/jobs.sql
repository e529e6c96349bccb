-- name: get_job One job with the place it stands in.
@job_columns
FROM duly.jobs j LEFT JOIN (SELECT * FROM duly.places WHERE id = :id::uuid) p ON p.id = j.id WHERE j.id = :id::uuid

-- name: ended_states How these jobs ended, those that have.
SELECT id, state FROM duly.ended WHERE id = :id::uuid

-- name: runs_of Every run of a job, first to last.
SELECT job_id, token, attempt, outcome, started_at, finished_at, worker_id, error_kind, error, traceback, result, log
FROM duly.runs WHERE job_id = :id::uuid ORDER BY token

-- name: last_run The last run of a job.
SELECT job_id, token, attempt, outcome, started_at, finished_at, worker_id, error_kind, error, traceback, result, log
FROM duly.runs WHERE job_id = :id::uuid ORDER BY token DESC LIMIT 1

-- name: recent_runs [sqlite] The runs that ended last, of all jobs; or of one task or tenant, among so many that ended last.
SELECT r.job_id, r.token, r.attempt, r.outcome, r.started_at, r.finished_at, r.worker_id, r.error_kind, r.error, r.traceback, r.result, r.log
FROM duly.runs r
WHERE r.finished_at >= CASE WHEN :task IS NULL AND :tenant IS NULL OR :look IS NULL THEN 0
                            ELSE COALESCE((SELECT l.finished_at FROM duly.runs l ORDER BY l.finished_at DESC LIMIT 1 OFFSET :look), 0) END
  AND ((:task IS NULL AND :tenant IS NULL)
   OR EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = r.job_id AND (:task IS NULL OR j.task = :task) AND (:tenant IS NULL OR j.tenant = :tenant)))
ORDER BY r.finished_at DESC, r.job_id DESC, r.token DESC LIMIT :n

-- name: recent_runs [postgres] The runs that ended last in a span of seconds, of all jobs or of one task or tenant. (OFFSET 0: in order of time first, then see whose they are, until there are enough.)
SELECT r.job_id, r.token, r.attempt, r.outcome, r.started_at, r.finished_at, r.worker_id, r.error_kind, r.error, r.traceback, r.result, r.log
FROM (
    SELECT l.job_id, l.token FROM (
        SELECT job_id, token FROM duly.runs
        WHERE finished_at / 1000000 >= :from_second::bigint AND finished_at / 1000000 < :until_second::bigint
        ORDER BY finished_at DESC, job_id DESC, token DESC OFFSET 0) l
    WHERE (:task::text IS NULL AND :tenant::text IS NULL)
       OR (SELECT (:task::text IS NULL OR j.task = :task::text) AND (:tenant::text IS NULL OR j.tenant = :tenant::text) FROM duly.jobs j WHERE j.id = l.job_id)
    LIMIT :n::integer) newest
JOIN duly.runs r ON r.job_id = newest.job_id AND r.token = newest.token
ORDER BY r.finished_at DESC, r.job_id DESC, r.token DESC

-- name: last_activity [postgres] The end of the last minute or hour, before some second, in which runs of a task or tenant, or any, ended.
SELECT max(p.ends_at) / 1000000 FROM (VALUES (60000000::bigint), (3600000000::bigint)) AS period (us) CROSS JOIN LATERAL (
    SELECT period_at + period.us AS ends_at FROM duly.rollups
    WHERE period_us = period.us AND period_at < :until_second::bigint * 1000000
      AND (:task::text IS NULL OR task = :task::text) AND (:tenant::text IS NULL OR tenant = :tenant::text)
    ORDER BY period_at DESC LIMIT 1) p

-- name: take_unstarted [postgres] Take a job that has not started out of its place.
WITH a AS (DELETE FROM duly.scheduled WHERE id = :id::uuid RETURNING id, token, attempt, crashes, hold),
     b AS (DELETE FROM duly.waiting WHERE id = :id::uuid RETURNING id, token, attempt, crashes, hold),
     c AS (DELETE FROM duly.parked WHERE id = :id::uuid RETURNING id, token, attempt, crashes, hold)
SELECT * FROM a UNION ALL SELECT * FROM b UNION ALL SELECT * FROM c

-- name: is_unstarted Whether a job has not started.
SELECT 1 WHERE EXISTS (SELECT 1 FROM duly.scheduled WHERE id = :id::uuid) OR EXISTS (SELECT 1 FROM duly.waiting WHERE id = :id::uuid)
    OR EXISTS (SELECT 1 FROM duly.parked WHERE id = :id::uuid)

-- name: due_at When a job that has not started is or was due, and whether it stands in the schedule.
SELECT run_at, 1 FROM duly.scheduled WHERE id = :id::uuid UNION ALL SELECT run_at, 0 FROM duly.waiting WHERE id = :id::uuid
UNION ALL SELECT run_at, 0 FROM duly.parked WHERE id = :id::uuid

-- name: set_limit_key A job's new arguments give it another key of its limits.
UPDATE duly.jobs SET limit_key = :limit_key::text WHERE id = :id::uuid

-- name: find_unstarted [sqlite] A job that has not started, wherever it stands.
SELECT id, token, attempt, crashes, hold FROM duly.scheduled WHERE id = :id
UNION ALL SELECT id, token, attempt, crashes, hold FROM duly.waiting WHERE id = :id
UNION ALL SELECT id, token, attempt, crashes, hold FROM duly.parked WHERE id = :id

-- name: leave_scheduled_one [sqlite] Out of the schedule.
DELETE FROM duly.scheduled WHERE id = :id

-- name: leave_waiting_one [sqlite] Out of its lane.
DELETE FROM duly.waiting WHERE id = :id

-- name: leave_parked_one [sqlite] Out of parking.
DELETE FROM duly.parked WHERE id = :id

-- name: insert_ended A job ends without a run.
INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes, hold, reason)
VALUES (:id::uuid, :state::text, :now, :token::bigint, :attempt::integer, :crashes::smallint, :hold::smallint, :reason::text)

-- name: lock_ended [postgres] Hold a finished job that is to come back.
SELECT token, COALESCE(hold, 0) FROM duly.ended WHERE id = :id::uuid FOR UPDATE

-- name: lock_ended [sqlite] Find a finished job that is to come back.
SELECT token, hold FROM duly.ended WHERE id = :id

-- name: take_ended A finished job comes back: out of ended, if it is there.
DELETE FROM duly.ended WHERE id = :id::uuid RETURNING id, state, token

-- name: requeue A job goes into its lane, due now or as it was, its attempts and crashes as given.
INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold)
SELECT j.queue, CASE WHEN :crashes::smallint > 1 THEN 1 ELSE 0 END, j.tenant, j.task,
       COALESCE(:run_at::bigint, :now) - j.priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = j.queue), :horizon::bigint) / 100),
       j.id, COALESCE(:run_at::bigint, :now), j.priority, :token::bigint, :attempt::integer, :crashes::smallint, :hold::smallint
FROM duly.jobs j WHERE j.id = :id::uuid AND j.limit_key IS NULL RETURNING id

-- name: reschedule A job goes into the schedule for a later time.
INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, token, attempt, crashes, hold)
SELECT j.id, COALESCE(:run_at::bigint, :now + :delay_us::bigint), j.queue, j.tenant, j.task, j.priority, :token::bigint, :attempt::integer, :crashes::smallint, :hold::smallint
FROM duly.jobs j WHERE j.id = :id::uuid

-- name: set_priority Change what a job's priority is from its next place on.
UPDATE duly.jobs SET priority = :priority::smallint WHERE id = :id::uuid

-- name: rerank A waiting job moves to the place its new priority gives it.
UPDATE duly.waiting SET priority = :priority::smallint,
    rank = run_at - :priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = queue), :horizon::bigint) / 100)
WHERE id = :id::uuid RETURNING id

-- name: reprioritise_scheduled A scheduled job takes its new priority along.
UPDATE duly.scheduled SET priority = :priority::smallint WHERE id = :id::uuid RETURNING id

-- name: delete_job Forget a job; its place and runs go in the same transaction.
DELETE FROM duly.jobs WHERE id = :id::uuid

-- name: delete_runs Forget what happened to a job.
DELETE FROM duly.runs WHERE job_id = :id::uuid

-- name: is_running Whether a worker holds this job.
SELECT worker_id FROM duly.running WHERE id = :id::uuid

-- name: park [postgres] A run that must not start is set aside with the reason; no attempt is counted.
WITH held AS (
    DELETE FROM duly.running WHERE id = :id::uuid AND token = :token::bigint RETURNING *
), parked AS (
    INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, token, attempt, crashes, hold, parked_at, reason, detail, mark)
    SELECT id, queue, tenant, task, run_at, priority, token, attempt - 1, crashes, hold, :now, :reason::text, :detail::text, :mark::text FROM held
)
SELECT hold, cancel_at, cancel_reason FROM held

-- name: park_held [sqlite] A run that must not start is set aside with the reason; no attempt is counted.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, token, attempt, crashes, hold, parked_at, reason, detail, mark)
SELECT id, queue, tenant, task, run_at, priority, token, attempt - 1, crashes, hold, :now, :reason, :detail, :mark
FROM duly.running WHERE id = :id AND token = :token

-- name: leave_running_one [sqlite] Out of running.
DELETE FROM duly.running WHERE id = :id AND token = :token RETURNING hold, cancel_at, cancel_reason

-- name: park_new A new job that must wait for another is set aside.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, hold, parked_at, reason, detail, mark)
VALUES (:id::uuid, :queue::text, :tenant::text, :task::text, :now, :priority::smallint, :hold::smallint, :now, :reason::text, :detail::text, :mark::text)

-- name: stale_parked Jobs parked because their arguments did not fit another version of the code.
SELECT id FROM duly.parked WHERE reason = 'arguments' AND task = :task::text AND mark <> :mark::text LIMIT :n::integer

-- name: parked_behind The job that a job set aside for its unique key waits for.
SELECT mark FROM duly.parked WHERE id = :id::uuid AND reason = 'unique'

-- name: count_waiting How many jobs wait, by queue, tenant and task. (First by lanes, in which they stand in the index: nothing is sorted.)
SELECT queue, tenant, task, sum(n)::bigint, min(first_at)
FROM (SELECT queue, suspect, tenant, task, count(*) AS n, min(run_at) AS first_at FROM duly.waiting GROUP BY queue, suspect, tenant, task) l
GROUP BY queue, tenant, task

-- name: count_scheduled How many jobs are scheduled, by queue and task.
SELECT queue, tenant, task, count(*), min(run_at) FROM duly.scheduled GROUP BY queue, tenant, task

-- name: count_running How many jobs run, by queue and task.
SELECT queue, tenant, task, count(*), min(claimed_at) FROM duly.running GROUP BY queue, tenant, task

-- name: count_parked How many jobs are parked, by reason.
SELECT reason, count(*) FROM duly.parked GROUP BY reason

-- name: count_ended How many jobs ended, by state.
SELECT state, count(*) FROM duly.ended GROUP BY state

-- name: anything_left Whether any job of these queues still waits, is scheduled or runs; a recurring one (hold 4, 5) only if it is due.
SELECT EXISTS (SELECT 1 FROM duly.waiting WHERE queue = :queue::text)
    OR EXISTS (SELECT 1 FROM duly.scheduled WHERE queue = :queue::text AND (hold < 4 OR run_at <= :now))
    OR EXISTS (SELECT 1 FROM duly.running WHERE queue = :queue::text)

-- name: queue_settings What was said of queues: how fast they age, whether tenants take turns.
SELECT name, horizon_us, fair FROM duly.queues

-- name: set_horizon How fast a queue ages; NULL is the default.
INSERT INTO duly.queues (name, horizon_us) VALUES (:queue::text, :horizon_us::bigint)
ON CONFLICT (name) DO UPDATE SET horizon_us = excluded.horizon_us
