-- name: add_hour Add up the minutes of one hour.
INSERT INTO duly.rollups (period_us, period_at, tenant, queue, task, shard, runs, succeeded, failed, retried, cancelled, crashed, recovered, ran_us, waited_us, wait_5ms, wait_20ms, wait_100ms, wait_500ms, wait_1s, wait_5s, wait_15s, wait_1m, wait_5m, wait_30m, wait_2h, wait_more)
SELECT 3600000000, :hour_at::bigint, tenant, queue, task, 0, sum(runs), sum(succeeded), sum(failed), sum(retried), sum(cancelled), sum(crashed), sum(recovered), sum(ran_us), sum(waited_us), sum(wait_5ms), sum(wait_20ms), sum(wait_100ms), sum(wait_500ms), sum(wait_1s), sum(wait_5s), sum(wait_15s), sum(wait_1m), sum(wait_5m), sum(wait_30m), sum(wait_2h), sum(wait_more)
FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :hour_at::bigint AND period_at < :hour_at::bigint + 3600000000
GROUP BY tenant, queue, task
ON CONFLICT (period_us, period_at, tenant, queue, task, shard) DO NOTHING

-- name: sum_rollups What ran between two times, by tenant, queue and task.
SELECT tenant, queue, task, sum(runs), sum(succeeded), sum(failed), sum(retried), sum(cancelled), sum(crashed), sum(recovered), sum(ran_us), sum(waited_us), sum(wait_5ms), sum(wait_20ms), sum(wait_100ms), sum(wait_500ms), sum(wait_1s), sum(wait_5s), sum(wait_15s), sum(wait_1m), sum(wait_5m), sum(wait_30m), sum(wait_2h), sum(wait_more)
FROM duly.rollups WHERE period_at >= :from_at::bigint AND period_at < :until_at::bigint
  AND (:tenant::text IS NULL OR tenant = :tenant::text)
GROUP BY tenant, queue, task ORDER BY tenant, queue, task
