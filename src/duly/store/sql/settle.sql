-- In PostgreSQL's statements `id = ANY (ARRAY[b.id])` says `id = b.id`, and that each is to be looked up by its key: not to be merged
-- with all there is, however empty the table seemed when VACUUM came by (docs/decisions/0028-plain-runs.md).

-- name: settle [postgres] End runs: each leaves running, if its token still holds, for ended, scheduled or waiting. One asked to stop does not go back. Answers NULL if all did, else who.
WITH batch AS (
    SELECT * FROM unnest((SELECT :ids::uuid[]), :tokens::bigint[], :states::text[], :outcomes::text[], :delays::bigint[], :uncounted::integer[],
                         :crashes::integer[], :ran::bigint[], :ages::bigint[], :reasons::text[], :error_kinds::text[], :errors::text[],
                         :tracebacks::text[], :results::text[], :logs::text[], :agains::bigint[])
        AS b(id, token, state, outcome, delay_us, uncounted, crashes, ran_us, age_us, reason, error_kind, error, traceback, result, log, again_at)
), held AS (
    DELETE FROM duly.running r USING batch b
    WHERE r.id = ANY (ARRAY[b.id]) AND r.token = b.token AND (NOT :only_expired::boolean OR r.leased_until <= :lease_now OR r.deadline_at <= :now)
    RETURNING r.id, r.token, r.queue, r.tenant, r.task, r.priority, r.run_at, r.attempt, r.hold, r.worker_id, r.claimed_at, b.outcome,
              CASE WHEN r.cancel_at IS NOT NULL AND r.hold < 4 AND b.state IN ('scheduled', 'queued') THEN 'cancelled' ELSE b.state END AS state,
              CASE WHEN r.cancel_at IS NOT NULL AND r.hold < 4 AND b.state IN ('scheduled', 'queued') THEN r.cancel_reason ELSE b.reason END AS reason,
              b.again_at, b.delay_us, b.uncounted, b.crashes, b.ran_us, b.error_kind, b.error, b.traceback, b.result, b.log,
              (SELECT :now::bigint) - b.age_us AS finished_at,
              CASE WHEN b.ran_us < 0 THEN r.claimed_at ELSE (SELECT :now::bigint) - b.age_us - b.ran_us END AS started_at
), ended AS (
    INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes, hold, reason)
    SELECT id, state, finished_at, token, attempt - uncounted, NULLIF(crashes, 0), NULLIF(hold, 0), reason FROM held WHERE state IN ('succeeded', 'failed', 'cancelled')
), later AS (
    INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, token, attempt, crashes, hold)
    SELECT id, COALESCE(again_at, :now + delay_us), queue, tenant, task, priority, token, attempt - uncounted, crashes, hold
    FROM held WHERE state IN ('scheduled', 'recurs')
), again AS (
    INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold)
    SELECT queue, CASE WHEN crashes > 1 THEN 1 ELSE 0 END, tenant, task,
           run_at - priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = queue), :horizon::bigint) / 100),
           id, run_at, priority, token, attempt - uncounted, crashes, hold
    FROM held WHERE state = 'queued'
), history AS (
    INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id, error_kind, error, traceback, result, log)
    SELECT id, token, attempt, outcome, started_at, finished_at, worker_id, error_kind, error, traceback, result, log
    FROM held WHERE outcome <> 'released' OR ran_us >= 0
), counted AS (
@count_held
)
SELECT CASE WHEN count(*) = cardinality(:ids::uuid[]) THEN NULL ELSE COALESCE(string_agg(id::text, ' '), '') END FROM held

-- name: settle_plain [postgres] The same for runs that succeeded and say no more than their result, as most do: five arrays instead of sixteen.
WITH held AS (
    DELETE FROM duly.running r USING unnest((SELECT :ids::uuid[]), :tokens::bigint[], :ran::bigint[], :ages::bigint[], :results::text[])
        AS b(id, token, ran_us, age_us, result)
    WHERE r.id = ANY (ARRAY[b.id]) AND r.token = b.token
    RETURNING r.id, r.token, r.queue, r.tenant, r.task, r.run_at, r.attempt, r.hold, r.worker_id, b.ran_us, b.result,
              'succeeded' AS state, 'succeeded' AS outcome, (SELECT :now::bigint) - b.age_us AS finished_at,
              CASE WHEN b.ran_us < 0 THEN r.claimed_at ELSE (SELECT :now::bigint) - b.age_us - b.ran_us END AS started_at
), ended AS (
    INSERT INTO duly.ended (id, state, finished_at, token, attempt, hold)
    SELECT id, state, finished_at, token, attempt, NULLIF(hold, 0) FROM held
), history AS (
    INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id, result)
    SELECT id, token, attempt, outcome, started_at, finished_at, worker_id, result FROM held
), counted AS (
@count_held
)
SELECT CASE WHEN count(*) = cardinality(:ids::uuid[]) THEN NULL ELSE COALESCE(string_agg(id::text, ' '), '') END FROM held

-- part: count_held [postgres] Count the runs in `held`, by minute, tenant, queue and task.
    INSERT INTO duly.rollups AS t (period_us, period_at, tenant, queue, task, shard, runs, succeeded, failed, retried, cancelled, crashed, recovered, ran_us, waited_us, wait_5ms, wait_20ms, wait_100ms, wait_500ms, wait_1s, wait_5s, wait_15s, wait_1m, wait_5m, wait_30m, wait_2h, wait_more)
    SELECT 60000000, finished_at - finished_at % 60000000, tenant, queue, task, :shard::integer,
           count(*),
           count(*) FILTER (WHERE outcome = 'succeeded'),
           count(*) FILTER (WHERE outcome = 'failed'),
           count(*) FILTER (WHERE outcome IN ('failed', 'crashed') AND state IN ('scheduled', 'queued', 'recurs')),
           count(*) FILTER (WHERE outcome IN ('cancelled', 'expired')),
           count(*) FILTER (WHERE outcome = 'crashed'),
           count(*) FILTER (WHERE outcome = 'succeeded' AND attempt > 1),
           sum(finished_at - started_at),
           sum(GREATEST(started_at - run_at, 0)),
           count(*) FILTER (WHERE started_at - run_at < 5000),
           count(*) FILTER (WHERE started_at - run_at >= 5000 AND started_at - run_at < 20000),
           count(*) FILTER (WHERE started_at - run_at >= 20000 AND started_at - run_at < 100000),
           count(*) FILTER (WHERE started_at - run_at >= 100000 AND started_at - run_at < 500000),
           count(*) FILTER (WHERE started_at - run_at >= 500000 AND started_at - run_at < 1000000),
           count(*) FILTER (WHERE started_at - run_at >= 1000000 AND started_at - run_at < 5000000),
           count(*) FILTER (WHERE started_at - run_at >= 5000000 AND started_at - run_at < 15000000),
           count(*) FILTER (WHERE started_at - run_at >= 15000000 AND started_at - run_at < 60000000),
           count(*) FILTER (WHERE started_at - run_at >= 60000000 AND started_at - run_at < 300000000),
           count(*) FILTER (WHERE started_at - run_at >= 300000000 AND started_at - run_at < 1800000000),
           count(*) FILTER (WHERE started_at - run_at >= 1800000000 AND started_at - run_at < 7200000000),
           count(*) FILTER (WHERE started_at - run_at >= 7200000000)
    FROM held WHERE outcome <> 'released' OR ran_us >= 0 GROUP BY 2, 3, 4, 5 ORDER BY 2, 3, 4, 5
    ON CONFLICT (period_us, period_at, tenant, queue, task, shard) DO UPDATE SET
        runs = t.runs + excluded.runs, succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed, retried = t.retried + excluded.retried,
        cancelled = t.cancelled + excluded.cancelled, crashed = t.crashed + excluded.crashed, recovered = t.recovered + excluded.recovered, ran_us = t.ran_us + excluded.ran_us,
        waited_us = t.waited_us + excluded.waited_us, wait_5ms = t.wait_5ms + excluded.wait_5ms, wait_20ms = t.wait_20ms + excluded.wait_20ms, wait_100ms = t.wait_100ms + excluded.wait_100ms,
        wait_500ms = t.wait_500ms + excluded.wait_500ms, wait_1s = t.wait_1s + excluded.wait_1s, wait_5s = t.wait_5s + excluded.wait_5s, wait_15s = t.wait_15s + excluded.wait_15s,
        wait_1m = t.wait_1m + excluded.wait_1m, wait_5m = t.wait_5m + excluded.wait_5m, wait_30m = t.wait_30m + excluded.wait_30m, wait_2h = t.wait_2h + excluded.wait_2h,
        wait_more = t.wait_more + excluded.wait_more

-- name: settle_held [sqlite] Which of the runs to settle are still held by their token; and which of those were asked to stop, and why.
SELECT json_group_array(r.id), json_group_array(json_array(r.id, r.cancel_reason)) FILTER (WHERE r.cancel_at IS NOT NULL AND r.hold < 4) FROM json_each(:batch) b CROSS JOIN duly.running r
ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]')
WHERE NOT :only_expired OR r.leased_until <= :lease_now OR r.deadline_at <= :now

-- name: settle_runs [sqlite] Write the history of runs that end.
INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id, error_kind, error, traceback, result, log)
SELECT r.id, r.token, r.attempt, json_extract(b.value, '$[3]'),
       CASE WHEN json_extract(b.value, '$[7]') < 0 THEN r.claimed_at ELSE :now - json_extract(b.value, '$[8]') - json_extract(b.value, '$[7]') END,
       :now - json_extract(b.value, '$[8]'), r.worker_id, json_extract(b.value, '$[10]'), json_extract(b.value, '$[11]'),
       json_extract(b.value, '$[12]'), json_extract(b.value, '$[13]'), json_extract(b.value, '$[14]')
FROM json_each(:batch) b CROSS JOIN duly.running r
ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]')
WHERE json_extract(b.value, '$[3]') <> 'released' OR json_extract(b.value, '$[7]') >= 0

-- name: settle_ended [sqlite] Jobs whose run was their last.
INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes, hold, reason)
SELECT r.id, json_extract(b.value, '$[2]'), :now - json_extract(b.value, '$[8]'), r.token, r.attempt - json_extract(b.value, '$[5]'),
       json_extract(b.value, '$[6]'), r.hold, json_extract(b.value, '$[9]')
FROM json_each(:batch) b CROSS JOIN duly.running r
ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]')

-- name: settle_scheduled [sqlite] Jobs that run again later.
INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, token, attempt, crashes, hold)
SELECT r.id, COALESCE(json_extract(b.value, '$[15]'), :now + json_extract(b.value, '$[4]')), r.queue, r.tenant, r.task, r.priority, r.token,
       r.attempt - json_extract(b.value, '$[5]'),
       json_extract(b.value, '$[6]'), r.hold
FROM json_each(:batch) b CROSS JOIN duly.running r
ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]')

-- name: settle_queued [sqlite] Jobs that go back into their lane.
INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold)
SELECT r.queue, json_extract(b.value, '$[6]') > 1, r.tenant, r.task,
       r.run_at - r.priority * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = r.queue), :horizon) / 100),
       r.id, r.run_at, r.priority, r.token, r.attempt - json_extract(b.value, '$[5]'), json_extract(b.value, '$[6]'), r.hold
FROM json_each(:batch) b CROSS JOIN duly.running r
ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]')

-- part: count_runs [sqlite] Runs that end, by minute, tenant, queue and task. Sums that are written twice are counted once.
INSERT INTO duly.rollups (period_us, period_at, tenant, queue, task, shard, runs, succeeded, failed, retried, cancelled, crashed, recovered, ran_us, waited_us, wait_5ms, wait_20ms, wait_100ms, wait_500ms, wait_1s, wait_5s, wait_15s, wait_1m, wait_5m, wait_30m, wait_2h, wait_more)
SELECT 60000000, finished_at - finished_at % 60000000, tenant, queue, task, :shard,
       count(*),
       sum(outcome = 'succeeded'),
       sum(outcome = 'failed'),
       sum(outcome IN ('failed', 'crashed') AND state IN ('scheduled', 'queued', 'recurs')),
       sum(outcome IN ('cancelled', 'expired')),
       sum(outcome = 'crashed'),
       sum(outcome = 'succeeded' AND attempt > 1),
       sum(finished_at - started_at),
       sum(max(waited, 0)),
       sum(waited < 5000),
       sum(waited < 20000) - sum(waited < 5000),
       sum(waited < 100000) - sum(waited < 20000),
       sum(waited < 500000) - sum(waited < 100000),
       sum(waited < 1000000) - sum(waited < 500000),
       sum(waited < 5000000) - sum(waited < 1000000),
       sum(waited < 15000000) - sum(waited < 5000000),
       sum(waited < 60000000) - sum(waited < 15000000),
       sum(waited < 300000000) - sum(waited < 60000000),
       sum(waited < 1800000000) - sum(waited < 300000000),
       sum(waited < 7200000000) - sum(waited < 1800000000),
       count(*) - sum(waited < 7200000000)

-- part: add_counts [sqlite] The counts of a minute grow.
WHERE true GROUP BY 2, 3, 4, 5
ON CONFLICT (period_us, period_at, tenant, queue, task, shard) DO UPDATE SET
    runs = runs + excluded.runs, succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed, retried = retried + excluded.retried,
        cancelled = cancelled + excluded.cancelled, crashed = crashed + excluded.crashed, recovered = recovered + excluded.recovered, ran_us = ran_us + excluded.ran_us,
        waited_us = waited_us + excluded.waited_us, wait_5ms = wait_5ms + excluded.wait_5ms, wait_20ms = wait_20ms + excluded.wait_20ms, wait_100ms = wait_100ms + excluded.wait_100ms,
        wait_500ms = wait_500ms + excluded.wait_500ms, wait_1s = wait_1s + excluded.wait_1s, wait_5s = wait_5s + excluded.wait_5s, wait_15s = wait_15s + excluded.wait_15s,
        wait_1m = wait_1m + excluded.wait_1m, wait_5m = wait_5m + excluded.wait_5m, wait_30m = wait_30m + excluded.wait_30m, wait_2h = wait_2h + excluded.wait_2h,
        wait_more = wait_more + excluded.wait_more

-- name: settle_rollups [sqlite] Count the runs that end, by minute, tenant, queue and task.
@count_runs
FROM (SELECT r.tenant, r.queue, r.task, u.started_at - r.run_at AS waited, u.attempt, u.outcome, u.started_at, u.finished_at,
             CASE WHEN json_extract(b.value, '$[2]') IS NULL THEN '' ELSE json_extract(b.value, '$[2]') END AS state
      FROM json_each(:batch) b CROSS JOIN duly.running r
      ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]')
      CROSS JOIN duly.runs u ON u.job_id = r.id AND u.token = r.token)
@add_counts

-- name: settle_done [sqlite] Take the settled runs out of running.
DELETE FROM duly.running WHERE id IN (SELECT value FROM json_each(:ids))

-- Most runs succeed, and need no more than a few columns: they are laid out in a table of this connection, once, and go from there.

-- name: settle_lay_out [sqlite] Runs that succeeded and are held by their token, as text: id, token, how long they ran, how long ago, result.
INSERT OR IGNORE INTO duly.settling (id, token, queue, tenant, task, run_at, attempt, hold, worker_id, started_at, finished_at, result)
SELECT r.id, r.token, r.queue, r.tenant, r.task, r.run_at, r.attempt, r.hold, r.worker_id,
       CASE WHEN substr(b.value, 56, 1) = '-' THEN r.claimed_at
            ELSE :now - CAST(substr(b.value, 75, 19) AS integer) - CAST(substr(b.value, 56, 19) AS integer) END,
       :now - CAST(substr(b.value, 75, 19) AS integer), nullif(substr(b.value, 94), '')
FROM json_each(:batch) b CROSS JOIN duly.running r
ON r.id = substr(b.value, 1, 36) AND r.token = CAST(substr(b.value, 37, 19) AS integer)

-- name: settle_laid_runs [sqlite] Write the history of runs that succeeded.
INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id, result)
SELECT id, token, attempt, 'succeeded', started_at, finished_at, worker_id, result FROM duly.settling

-- name: settle_laid_ended [sqlite] Their jobs have ended.
INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes, hold)
SELECT id, 'succeeded', finished_at, token, attempt, 0, hold FROM duly.settling

-- name: settle_laid_rollups [sqlite] Count them.
@count_runs
FROM (SELECT *, 'succeeded' AS outcome, 'succeeded' AS state FROM duly.settling)
@add_counts

-- name: settle_laid_done [sqlite] Take them out of running.
DELETE FROM duly.running WHERE id IN (SELECT id FROM duly.settling)

-- name: settle_laid [sqlite] Which they were.
SELECT json_group_array(id) FROM duly.settling

-- name: settle_clear [sqlite] Make room for the next.
DELETE FROM duly.settling

-- name: forget_runs Drop the first runs of a job that has had very many.
DELETE FROM duly.runs WHERE job_id = :id::uuid AND token <= :before::bigint

-- name: settled_before Whether a run is on record with this outcome: a retry after a lost reply asks this.
SELECT job_id FROM duly.runs WHERE job_id = :id::uuid AND token = :token::bigint AND outcome = :outcome::text

-- name: parked_before Whether a run was set aside so: a retry after a lost reply asks this.
SELECT id FROM duly.parked WHERE id = :id::uuid AND token = :token::bigint AND mark = :mark::text

-- name: lock_run [postgres] Hold a run that is to be settled, if its token holds; says whether it was asked to stop.
SELECT cancel_at, cancel_reason FROM duly.running
WHERE id = :id::uuid AND token = :token::bigint AND (NOT :only_expired::boolean OR leased_until <= :lease_now OR deadline_at <= :now)
FOR UPDATE

-- name: lock_run [sqlite] Find a run that is to be settled, if its token holds; says whether it was asked to stop.
SELECT cancel_at, cancel_reason FROM duly.running
WHERE id = :id AND token = :token AND (NOT :only_expired OR leased_until <= :lease_now OR deadline_at <= :now)

-- name: held_pairs [postgres] Which of these (id, token) pairs are held, how each holds its unique key, and its crashes.
SELECT r.id, r.token, r.hold, r.crashes FROM unnest((SELECT :ids::uuid[]), :tokens::bigint[]) AS b(id, token)
JOIN duly.running r ON r.id = ANY (ARRAY[b.id]) AND r.token = b.token ORDER BY b.id

-- name: held_pairs [sqlite] Which of these (id, token) pairs are held, how each holds its unique key, and its crashes.
SELECT r.id, r.token, r.hold, r.crashes FROM json_each(:batch) b CROSS JOIN duly.running r
ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]') ORDER BY r.id

-- name: renew [postgres] Extend leases; says which (id, token) pairs were. A lapsed lease on a limited task does not hold: its slot may be taken. Waits for nobody: a handler may hold its own row until it commits. Where the handler has not begun, its time counts from now at the earliest.
UPDATE duly.running r SET leased_until = CASE WHEN r.limited = 0 THEN :lease_now + :lease_us::bigint ELSE GREATEST(r.leased_until, :lease_now + :lease_us::bigint) END,
    deadline_at = CASE WHEN r.deadline_at IS NOT NULL AND r.id = ANY (:not_running::uuid[])
                       THEN :now + :lease_us::bigint + (SELECT j.timeout_us FROM duly.jobs j WHERE j.id = r.id) ELSE r.deadline_at END
FROM (SELECT u.id, u.token FROM unnest((SELECT :ids::uuid[]), :tokens::bigint[]) AS b(id, token)
      JOIN duly.running u ON u.id = ANY (ARRAY[b.id]) AND u.token = b.token FOR NO KEY UPDATE OF u SKIP LOCKED) AS free
WHERE r.id = ANY (ARRAY[free.id]) AND r.token = free.token AND (r.limited = 0 OR r.leased_until > :lease_now)
RETURNING r.id, r.cancel_at

-- name: still_held [postgres] Which (id, token) pairs hold, whoever has them locked.
SELECT r.id FROM unnest((SELECT :ids::uuid[]), :tokens::bigint[]) AS b(id, token)
JOIN duly.running r ON r.id = ANY (ARRAY[b.id]) AND r.token = b.token AND (r.limited = 0 OR r.leased_until > :lease_now)

-- name: renew [sqlite] Extend leases; says which (id, token) pairs still hold. A lapsed lease on a limited task does not: its slot may be taken. Where the handler has not begun, its time counts from now at the earliest.
UPDATE duly.running AS r SET leased_until = :lease_now + :lease_us,
    deadline_at = CASE WHEN deadline_at IS NOT NULL AND id IN (SELECT value FROM json_each(:not_running))
                       THEN :now + :lease_us + (SELECT j.timeout_us FROM duly.jobs j WHERE j.id = r.id) ELSE deadline_at END
WHERE (id, token) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:batch))
  AND (limited = 0 OR leased_until > :lease_now)
RETURNING id, cancel_at

-- name: cancel_requests Which of a worker's jobs have been asked to stop.
SELECT id, token, cancel_reason FROM duly.running WHERE worker_id = :worker_id::uuid AND cancel_at IS NOT NULL

-- name: set_progress Note how far a run has come.
UPDATE duly.running SET progress = :progress::real, progress_text = :text::text WHERE id = :id::uuid AND token = :token::bigint

-- name: request_cancel Ask the worker that runs a job to stop it.
UPDATE duly.running SET cancel_at = COALESCE(cancel_at, :now), cancel_reason = COALESCE(cancel_reason, :reason::text)
WHERE id = :id::uuid RETURNING worker_id

-- name: held_by_worker What a worker holds according to the database.
SELECT id, token FROM duly.running WHERE worker_id = :worker_id::uuid

-- name: lapsed [postgres] Runs whose lease or deadline has passed; none soon after the server started, so an outage robs no one. Not those that somebody is about to end, who may be a handler in a transaction of its own. They are found in the table, in any order: its index by id may lead to a million rows that are gone.
WITH late AS MATERIALIZED (
    SELECT id FROM duly.running
    WHERE (leased_until <= :lease_now OR deadline_at <= :now)
      AND :lease_now > (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint + :lease_us::bigint
)
SELECT r.id, r.token, r.attempt, r.crashes, r.worker_id, j.max_attempts, j.retry,
       CASE WHEN r.leased_until <= :lease_now THEN 'lease' ELSE 'deadline' END, r.hold, j.limit_key
FROM duly.running r JOIN duly.jobs j ON j.id = r.id
WHERE r.id = ANY (ARRAY(SELECT id FROM late)) AND (r.leased_until <= :lease_now OR r.deadline_at <= :now)
ORDER BY r.id LIMIT :n::integer FOR KEY SHARE OF r SKIP LOCKED

-- name: lapsed [sqlite] Runs whose lease or deadline has passed.
SELECT r.id, r.token, r.attempt, r.crashes, r.worker_id, j.max_attempts, j.retry,
       CASE WHEN r.leased_until <= :lease_now THEN 'lease' ELSE 'deadline' END, r.hold, j.limit_key
FROM duly.running r JOIN duly.jobs j ON j.id = r.id
WHERE (r.leased_until <= :lease_now OR r.deadline_at <= :now)
ORDER BY r.id LIMIT :n

-- name: held_by_dead Runs held by one worker that is known to be gone.
SELECT r.id, r.token, r.attempt, r.crashes, r.worker_id, j.max_attempts, j.retry, 'gone', r.hold, j.limit_key
FROM duly.running r JOIN duly.jobs j ON j.id = r.id
WHERE r.worker_id = :worker_id::uuid ORDER BY r.id LIMIT :n::integer

-- name: held_before_boot [sqlite] Runs leased before this machine was booted, when the lease clock began anew. By the wall clock they are older than the boot, by the lease clock they end later than any lease from now, and their worker has not been seen since.
SELECT r.id, r.token, r.attempt, r.crashes, r.worker_id, j.max_attempts, j.retry, 'gone', r.hold, j.limit_key
FROM duly.running r JOIN duly.jobs j ON j.id = r.id
WHERE r.claimed_at < :now - :lease_now AND r.leased_until > :lease_now + :lease_us
  AND NOT EXISTS (SELECT 1 FROM duly.workers w WHERE w.id = r.worker_id AND w.seen_at >= :now - :lease_now)
ORDER BY r.id LIMIT :n

-- name: next_lapse When the next lease or deadline could pass.
SELECT min(leased_until) - :lease_now, min(deadline_at) - :now FROM duly.running
