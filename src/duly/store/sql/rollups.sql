-- name: add_hour [postgres] Turn the minutes of one hour into one row each; whoever deletes them adds them up.
WITH minutes AS (
    DELETE FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :hour_at::bigint AND period_at < :hour_at::bigint + 3600000000 RETURNING *
)
INSERT INTO duly.rollups AS t (period_us, period_at, tenant, queue, task, shard, runs, succeeded, failed, retried, cancelled, crashed, recovered, ran_us, waited_us, wait_5ms, wait_20ms, wait_100ms, wait_500ms, wait_1s, wait_5s, wait_15s, wait_1m, wait_5m, wait_30m, wait_2h, wait_more)
SELECT 3600000000, :hour_at::bigint, tenant, queue, task, 0, sum(runs), sum(succeeded), sum(failed), sum(retried), sum(cancelled), sum(crashed), sum(recovered), sum(ran_us), sum(waited_us), sum(wait_5ms), sum(wait_20ms), sum(wait_100ms), sum(wait_500ms), sum(wait_1s), sum(wait_5s), sum(wait_15s), sum(wait_1m), sum(wait_5m), sum(wait_30m), sum(wait_2h), sum(wait_more)
FROM minutes GROUP BY tenant, queue, task
ON CONFLICT (period_us, period_at, tenant, queue, task, shard) DO UPDATE SET
    runs = t.runs + excluded.runs, succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed, retried = t.retried + excluded.retried,
    cancelled = t.cancelled + excluded.cancelled, crashed = t.crashed + excluded.crashed, recovered = t.recovered + excluded.recovered, ran_us = t.ran_us + excluded.ran_us,
    waited_us = t.waited_us + excluded.waited_us, wait_5ms = t.wait_5ms + excluded.wait_5ms, wait_20ms = t.wait_20ms + excluded.wait_20ms, wait_100ms = t.wait_100ms + excluded.wait_100ms,
    wait_500ms = t.wait_500ms + excluded.wait_500ms, wait_1s = t.wait_1s + excluded.wait_1s, wait_5s = t.wait_5s + excluded.wait_5s, wait_15s = t.wait_15s + excluded.wait_15s,
    wait_1m = t.wait_1m + excluded.wait_1m, wait_5m = t.wait_5m + excluded.wait_5m, wait_30m = t.wait_30m + excluded.wait_30m, wait_2h = t.wait_2h + excluded.wait_2h,
    wait_more = t.wait_more + excluded.wait_more

-- name: add_hour [sqlite] Add up the minutes of one hour.
INSERT INTO duly.rollups (period_us, period_at, tenant, queue, task, shard, runs, succeeded, failed, retried, cancelled, crashed, recovered, ran_us, waited_us, wait_5ms, wait_20ms, wait_100ms, wait_500ms, wait_1s, wait_5s, wait_15s, wait_1m, wait_5m, wait_30m, wait_2h, wait_more)
SELECT 3600000000, :hour_at, tenant, queue, task, 0, sum(runs), sum(succeeded), sum(failed), sum(retried), sum(cancelled), sum(crashed), sum(recovered), sum(ran_us), sum(waited_us), sum(wait_5ms), sum(wait_20ms), sum(wait_100ms), sum(wait_500ms), sum(wait_1s), sum(wait_5s), sum(wait_15s), sum(wait_1m), sum(wait_5m), sum(wait_30m), sum(wait_2h), sum(wait_more)
FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :hour_at AND period_at < :hour_at + 3600000000
GROUP BY tenant, queue, task
ON CONFLICT (period_us, period_at, tenant, queue, task, shard) DO UPDATE SET
    runs = runs + excluded.runs, succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed, retried = retried + excluded.retried,
    cancelled = cancelled + excluded.cancelled, crashed = crashed + excluded.crashed, recovered = recovered + excluded.recovered, ran_us = ran_us + excluded.ran_us,
    waited_us = waited_us + excluded.waited_us, wait_5ms = wait_5ms + excluded.wait_5ms, wait_20ms = wait_20ms + excluded.wait_20ms, wait_100ms = wait_100ms + excluded.wait_100ms,
    wait_500ms = wait_500ms + excluded.wait_500ms, wait_1s = wait_1s + excluded.wait_1s, wait_5s = wait_5s + excluded.wait_5s, wait_15s = wait_15s + excluded.wait_15s,
    wait_1m = wait_1m + excluded.wait_1m, wait_5m = wait_5m + excluded.wait_5m, wait_30m = wait_30m + excluded.wait_30m, wait_2h = wait_2h + excluded.wait_2h,
    wait_more = wait_more + excluded.wait_more

-- name: sum_rollups What ran between two times, by tenant, queue and task.
SELECT tenant, queue, task, sum(runs)::bigint, sum(succeeded)::bigint, sum(failed)::bigint, sum(retried)::bigint, sum(cancelled)::bigint, sum(crashed)::bigint, sum(recovered)::bigint, sum(ran_us)::bigint, sum(waited_us)::bigint, sum(wait_5ms)::bigint, sum(wait_20ms)::bigint, sum(wait_100ms)::bigint, sum(wait_500ms)::bigint, sum(wait_1s)::bigint, sum(wait_5s)::bigint, sum(wait_15s)::bigint, sum(wait_1m)::bigint, sum(wait_5m)::bigint, sum(wait_30m)::bigint, sum(wait_2h)::bigint, sum(wait_more)::bigint
FROM duly.rollups WHERE period_at >= :from_at::bigint AND period_at < :until_at::bigint
  AND (:tenant::text IS NULL OR tenant = :tenant::text)
GROUP BY tenant, queue, task ORDER BY tenant, queue, task

-- name: sum_usage [postgres] What ran in each of several periods, divided by what is asked for.
SELECT width_bucket(period_at, :starts::bigint[]) - 1, CASE WHEN :by_tenant::boolean THEN tenant END, CASE WHEN :by_task::boolean THEN task END, CASE WHEN :by_queue::boolean THEN queue END,
       sum(runs)::bigint, sum(succeeded)::bigint, sum(failed)::bigint, sum(retried)::bigint, sum(cancelled)::bigint, sum(crashed)::bigint, sum(ran_us)::bigint, sum(waited_us)::bigint
FROM duly.rollups WHERE period_us IN (60000000, 3600000000) AND period_at >= :from_at::bigint AND period_at < :until_at::bigint
  AND (:tenant::text IS NULL OR tenant = :tenant::text) AND (:task::text IS NULL OR task = :task::text)
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4

-- name: sum_usage [sqlite] What ran in each of several periods, divided by what is asked for.
SELECT p.key, CASE WHEN :by_tenant THEN r.tenant END, CASE WHEN :by_task THEN r.task END, CASE WHEN :by_queue THEN r.queue END,
       sum(r.runs), sum(r.succeeded), sum(r.failed), sum(r.retried), sum(r.cancelled), sum(r.crashed), sum(r.ran_us), sum(r.waited_us)
FROM json_each(:periods) p CROSS JOIN duly.rollups r
ON r.period_us IN (60000000, 3600000000) AND r.period_at >= json_extract(p.value, '$[0]') AND r.period_at < json_extract(p.value, '$[1]')
WHERE (:tenant IS NULL OR r.tenant = :tenant) AND (:task IS NULL OR r.task = :task)
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
