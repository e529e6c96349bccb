-- How things stand, for metrics, alerts and `duly top`. Counts walk the narrow tables once; nobody asks more often than they can bear.

-- name: scan_freely [postgres] Let the next statements of this transaction read a whole table: they want all of it.
SET LOCAL enable_seqscan = on

-- name: observe_now What time it is.
SELECT :now

-- name: observe_waiting [postgres] What waits, by lane: how many, the oldest, how many of them recur and the oldest of those, and how many up to some priorities.
SELECT queue, tenant, task, count(*), min(run_at), count(*) FILTER (WHERE hold IN (4, 5)), min(run_at) FILTER (WHERE hold IN (4, 5)),
       count(*) FILTER (WHERE priority < 1), count(*) FILTER (WHERE priority < 25), count(*) FILTER (WHERE priority < 50),
       count(*) FILTER (WHERE priority < 75), count(*) FILTER (WHERE priority < 100)
FROM duly.waiting GROUP BY queue, suspect, tenant, task

-- name: observe_waiting [sqlite] The same. By suspect too, as its key is: else SQLite would sort all of it.
SELECT queue, tenant, task, count(*), min(run_at), sum(hold IN (4, 5)), min(CASE WHEN hold IN (4, 5) THEN run_at END),
       sum(priority < 1), sum(priority < 25), sum(priority < 50), sum(priority < 75), sum(priority < 100)
FROM duly.waiting GROUP BY queue, suspect, tenant, task

-- name: observe_running What runs, by lane: how many, and since when the one that runs longest.
SELECT queue, tenant, task, count(*), min(claimed_at) FROM duly.running GROUP BY queue, tenant, task

-- name: observe_scheduled What waits for its time, by lane.
SELECT queue, tenant, task, count(*) FROM duly.scheduled GROUP BY queue, tenant, task

-- name: observe_overdue What recurs and whose time has come, though nobody has put it into its lane.
SELECT queue, tenant, task, count(*), min(run_at) FROM (
    SELECT queue, tenant, task, run_at, hold FROM duly.scheduled WHERE run_at <= :now - 1000000 ORDER BY run_at LIMIT 10000) late
WHERE hold IN (4, 5) GROUP BY queue, tenant, task

-- name: observe_keyed [postgres] What waits for its key, in the same columns: it is due, and stands beside its lane.
SELECT queue, tenant, task, count(*), min(run_at), count(*) FILTER (WHERE hold IN (4, 5)), min(run_at) FILTER (WHERE hold IN (4, 5)),
       count(*) FILTER (WHERE priority < 1), count(*) FILTER (WHERE priority < 25), count(*) FILTER (WHERE priority < 50),
       count(*) FILTER (WHERE priority < 75), count(*) FILTER (WHERE priority < 100)
FROM duly.parked WHERE reason IN ('arrived', 'key') GROUP BY queue, tenant, task

-- name: observe_keyed [sqlite] What waits for its key, in the same columns: it is due, and stands beside its lane.
SELECT queue, tenant, task, count(*), min(run_at), sum(hold IN (4, 5)), min(CASE WHEN hold IN (4, 5) THEN run_at END),
       sum(priority < 1), sum(priority < 25), sum(priority < 50), sum(priority < 75), sum(priority < 100)
FROM duly.parked WHERE reason IN ('arrived', 'key') GROUP BY queue, tenant, task

-- name: observe_parked What is set aside for another reason, by reason.
SELECT reason, count(*) FROM duly.parked WHERE reason NOT IN ('arrived', 'key') GROUP BY reason

-- name: observe_poison Jobs that were set aside because they took their workers with them, of the last to fail.
SELECT j.task, count(*), min(p.id::text), max(p.finished_at) FROM (
    SELECT id, finished_at, reason FROM duly.ended WHERE state = 'failed' AND finished_at >= :since_at::bigint
    ORDER BY finished_at DESC, id DESC LIMIT 10000) p
JOIN duly.jobs j ON j.id = p.id WHERE p.reason LIKE 'poison:%' GROUP BY j.task

-- name: observe_poison_recurring Recurring jobs that were disabled for the same reason.
SELECT s.task, count(*), min(s.id::text), max(r.disabled_at) FROM duly.recurring r JOIN duly.schedules s ON s.id = r.id
WHERE NOT r.enabled AND r.disabled_at >= :since_at::bigint AND r.disabled_reason LIKE 'poison:%' GROUP BY s.task

-- name: observe_longest The jobs of a task that run longest.
SELECT id, claimed_at FROM duly.running WHERE task = :task::text ORDER BY claimed_at, id LIMIT :n::integer

-- name: observe_size [postgres] How large the database is, and how much of its log is kept for a replica that does not fetch it.
SELECT pg_database_size(current_database()),
       (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::bigint FROM pg_replication_slots WHERE restart_lsn IS NOT NULL)
WHERE NOT pg_is_in_recovery()

-- name: sum_minutes What ran in the minutes from one on, up to another, by lane.
SELECT queue, tenant, task, sum(runs)::bigint, sum(succeeded)::bigint, sum(failed)::bigint, sum(retried)::bigint, sum(cancelled)::bigint, sum(crashed)::bigint, sum(recovered)::bigint, sum(ran_us)::bigint, sum(waited_us)::bigint, sum(wait_5ms)::bigint, sum(wait_20ms)::bigint, sum(wait_100ms)::bigint, sum(wait_500ms)::bigint, sum(wait_1s)::bigint, sum(wait_5s)::bigint, sum(wait_15s)::bigint, sum(wait_1m)::bigint, sum(wait_5m)::bigint, sum(wait_30m)::bigint, sum(wait_2h)::bigint, sum(wait_more)::bigint
FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :from_at::bigint AND period_at < :until_at::bigint
GROUP BY queue, tenant, task

-- name: sum_each_minute What ran in each minute from one on, all together.
SELECT period_at, sum(runs)::bigint, sum(succeeded)::bigint, sum(failed)::bigint + sum(crashed)::bigint
FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :from_at::bigint GROUP BY period_at ORDER BY period_at
