-- What `duly doctor` looks at, and how it mends what it finds. Lists are cut at :n; nothing here is on the path of a job.
--
-- Whether jobs and places fit together is seen by walking along their ids side by side: each id is read once, and nothing is sorted. PostgreSQL
-- merges (`walk_in_order`), SQLite does so with compound selects that are ordered. That goes from the first of the newest jobs on (:first). What
-- is older and has not ended is looked up one by one, as much that has ended may lie between.

-- name: doctor_server [postgres] The server: its version, clock, settings that matter, and how many connections are in use.
SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_is_in_recovery(), current_setting('fsync'),
       current_setting('synchronous_commit'), current_setting('full_page_writes'), current_setting('autovacuum'),
       current_setting('max_connections')::integer, (SELECT sum(numbackends)::integer FROM pg_stat_database),
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = '<insufficient privilege>')

-- name: doctor_sessions [postgres] Sessions that have been in one transaction for a while: they keep dead rows from being removed.
SELECT pid, COALESCE(application_name, ''), COALESCE(usename, ''), COALESCE(state, ''),
       (extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::bigint,
       (extract(epoch FROM clock_timestamp() - state_change) * 1000000)::bigint, left(query, 200)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND xact_start < clock_timestamp() - interval '1 second'
ORDER BY xact_start LIMIT :n::integer

-- name: doctor_prepared [postgres] Transactions that were prepared and never ended.
SELECT gid, owner, (extract(epoch FROM clock_timestamp() - prepared) * 1000000)::bigint
FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT :n::integer

-- name: doctor_slots [postgres] Replication slots, how far each holds back vacuum (in transactions) and the log (in bytes).
SELECT slot_name, slot_type, active, COALESCE(age(xmin), 0), COALESCE(age(catalog_xmin), 0),
       COALESCE(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn), 0)::bigint
FROM pg_replication_slots ORDER BY slot_name LIMIT :n::integer

-- name: doctor_tables [postgres] Our tables: live and dead rows, time since the last vacuum, sizes, options.
SELECT s.relname, s.n_live_tup, s.n_dead_tup,
       (extract(epoch FROM clock_timestamp() - GREATEST(s.last_vacuum, s.last_autovacuum)) * 1000000)::bigint,
       pg_table_size(s.relid), pg_indexes_size(s.relid), COALESCE(array_to_string(c.reloptions, ' '), '')
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid WHERE s.schemaname = :schema::text ORDER BY s.relname

-- name: doctor_indexes [postgres] Our indexes, and whether each can be used.
SELECT c.relname, i.indisvalid AND i.indisready FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema::text

-- name: doctor_indexes [sqlite] Our indexes.
SELECT name, 1 FROM sqlite_master WHERE type = 'index'

-- name: doctor_version [sqlite] Which SQLite this is.
SELECT sqlite_version()

-- name: doctor_journal [sqlite] How the file is journalled.
PRAGMA journal_mode

-- name: doctor_quick_check [sqlite] Whether the file is sound; reads all of it.
PRAGMA quick_check(5)

-- part: doctor_live Every job that has not ended, once for each place it is in.
SELECT id, 'scheduled' AS place, hold FROM duly.scheduled
UNION ALL SELECT id, 'waiting', hold FROM duly.waiting
UNION ALL SELECT id, 'parked', hold FROM duly.parked
UNION ALL SELECT id, 'running', hold FROM duly.running

-- name: doctor_some_jobs How many jobs there are, counted no further than :n.
SELECT count(*) FROM (SELECT 1 FROM duly.jobs LIMIT :n::bigint) j

-- name: walk_in_order [postgres] Let the next statements of this transaction merge what they compare, by the indexes, whatever the statistics say.
SELECT set_config('enable_mergejoin', 'on', true), set_config('enable_nestloop', 'off', true), set_config('enable_sort', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true)

-- name: doctor_newest The last of the newest jobs, :before come before it; and the next one, if there are more.
SELECT id FROM duly.jobs ORDER BY id DESC LIMIT 2 OFFSET :before::bigint

-- name: doctor_nowhere [postgres] Of the jobs from :first on those that are in no place. A recurring one may be.
SELECT j.id FROM duly.jobs j WHERE j.id >= :first::uuid
  AND NOT EXISTS (SELECT 1 FROM duly.ended p WHERE p.id = j.id AND p.id >= :first::uuid)
  AND NOT EXISTS (SELECT 1 FROM duly.waiting p WHERE p.id = j.id AND p.id >= :first::uuid)
  AND NOT EXISTS (SELECT 1 FROM duly.scheduled p WHERE p.id = j.id AND p.id >= :first::uuid)
  AND NOT EXISTS (SELECT 1 FROM duly.running p WHERE p.id = j.id AND p.id >= :first::uuid)
  AND NOT EXISTS (SELECT 1 FROM duly.parked p WHERE p.id = j.id AND p.id >= :first::uuid)
  AND NOT EXISTS (SELECT 1 FROM duly.schedules s WHERE s.id = j.id AND s.id >= :first::uuid)
  AND NOT EXISTS (SELECT 1 FROM duly.recurring r WHERE r.id = j.id AND r.id >= :first::uuid)
LIMIT :n::integer

-- name: doctor_nowhere [sqlite] Of the jobs from :first on those that are in no place. A recurring one may be.
SELECT id FROM duly.jobs WHERE id >= :first EXCEPT SELECT id FROM duly.ended WHERE id >= :first
EXCEPT SELECT id FROM duly.waiting WHERE id >= :first EXCEPT SELECT id FROM duly.scheduled WHERE id >= :first
EXCEPT SELECT id FROM duly.running WHERE id >= :first EXCEPT SELECT id FROM duly.parked WHERE id >= :first
EXCEPT SELECT id FROM duly.schedules WHERE id >= :first EXCEPT SELECT id FROM duly.recurring WHERE id >= :first
ORDER BY id LIMIT :n

-- name: doctor_twice [postgres] Jobs that are in two places. (If both say that it has not ended: of all. If one says that it has: from :first on.)
SELECT w.id FROM duly.waiting w JOIN (
    SELECT id FROM duly.scheduled UNION ALL SELECT id FROM duly.parked UNION ALL SELECT id FROM duly.running) o ON o.id = w.id
UNION SELECT s.id FROM duly.scheduled s JOIN (SELECT id FROM duly.parked UNION ALL SELECT id FROM duly.running) o ON o.id = s.id
UNION SELECT p.id FROM duly.parked p JOIN duly.running r ON r.id = p.id
UNION SELECT l.id FROM (
@doctor_live
) l JOIN duly.ended e ON e.id = l.id WHERE l.id >= :first::uuid AND e.id >= :first::uuid
LIMIT :n::integer

-- name: doctor_twice [sqlite] The same. (A compound select is read from left to right. Each is cut, since UNION gathers all before the last cut.)
SELECT id FROM (SELECT id FROM duly.scheduled UNION ALL SELECT id FROM duly.parked UNION ALL SELECT id FROM duly.running
                INTERSECT SELECT id FROM duly.waiting ORDER BY id LIMIT :n)
UNION SELECT id FROM (SELECT id FROM duly.parked UNION ALL SELECT id FROM duly.running
                      INTERSECT SELECT id FROM duly.scheduled ORDER BY id LIMIT :n)
UNION SELECT id FROM (SELECT id FROM duly.parked INTERSECT SELECT id FROM duly.running ORDER BY id LIMIT :n)
UNION SELECT id FROM (SELECT id FROM duly.scheduled WHERE id >= :first UNION ALL SELECT id FROM duly.waiting WHERE id >= :first
                      UNION ALL SELECT id FROM duly.parked WHERE id >= :first UNION ALL SELECT id FROM duly.running WHERE id >= :first
                      INTERSECT SELECT id FROM duly.ended WHERE id >= :first ORDER BY id LIMIT :n)
LIMIT :n

-- name: doctor_twice_before Jobs before :first that have ended and have not.
SELECT l.id FROM (
@doctor_live
) l WHERE l.id < :first::uuid AND EXISTS (SELECT 1 FROM duly.ended e WHERE e.id = l.id)
LIMIT :n::integer

-- name: doctor_jobless [postgres] Places from :first on that name a job which is not there.
SELECT l.id FROM (
@doctor_live
) l WHERE l.id >= :first::uuid AND NOT EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = l.id AND j.id >= :first::uuid)
  AND NOT EXISTS (SELECT 1 FROM duly.recurring r WHERE r.id = l.id AND r.id >= :first::uuid)
  AND NOT EXISTS (SELECT 1 FROM duly.schedules s WHERE s.id = l.id AND s.id >= :first::uuid)
LIMIT :n::integer

-- name: doctor_jobless [sqlite] Places from :first on that name a job which is not there.
SELECT id FROM duly.scheduled WHERE id >= :first UNION ALL SELECT id FROM duly.waiting WHERE id >= :first
UNION ALL SELECT id FROM duly.parked WHERE id >= :first UNION ALL SELECT id FROM duly.running WHERE id >= :first
EXCEPT SELECT id FROM duly.jobs WHERE id >= :first
EXCEPT SELECT id FROM duly.recurring WHERE id >= :first EXCEPT SELECT id FROM duly.schedules WHERE id >= :first
ORDER BY id LIMIT :n

-- name: doctor_jobless_before Places before :first that name a job which is not there. (First by the jobs: most are there, and nothing else is asked.)
WITH missing AS MATERIALIZED (
SELECT l.id FROM (
@doctor_live
) l WHERE l.id < :first::uuid AND NOT EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = l.id)
)
SELECT m.id FROM missing m WHERE NOT EXISTS (SELECT 1 FROM duly.recurring r WHERE r.id = m.id)
  AND NOT EXISTS (SELECT 1 FROM duly.schedules s WHERE s.id = m.id)
LIMIT :n::integer

-- name: doctor_waiting What waits, by lane. (Not `count_waiting`: a connection keeps the first plan that it makes for a statement without parameters.)
SELECT queue, tenant, task, count(*), min(run_at) FROM duly.waiting GROUP BY queue, suspect, tenant, task

-- name: doctor_lapsed Runs whose lease passed long ago: how many, and for how long at most.
SELECT count(*), :lease_now - min(leased_until) FROM duly.running WHERE leased_until < :lease_now - :grace_us::bigint

-- name: doctor_unpromoted Jobs whose time came long ago and that nobody put into their lanes: how many, how late, how many of them recur.
SELECT count(*), :now - min(run_at), count(*) FILTER (WHERE hold IN (4, 5)) FROM duly.scheduled WHERE run_at < :now - :late_us::bigint

-- name: doctor_parked Jobs that are set aside, by reason and task.
SELECT reason, task, count(*), :now - min(parked_at) FROM duly.parked GROUP BY reason, task ORDER BY 3 DESC LIMIT :n::integer

-- name: doctor_dead_keys Unique keys whose holder is gone, or has ended and should have given it back.
SELECT u.tenant, u.key FROM duly.unique_keys u
WHERE NOT EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = u.job_id)
   OR (u.scope IN (1, 2) AND EXISTS (SELECT 1 FROM duly.ended e WHERE e.id = u.job_id))
LIMIT :n::integer

-- name: doctor_keyless Jobs set aside to run after another with the same unique key, which nobody will hand them.
SELECT p.id FROM duly.parked p WHERE p.reason = 'unique'
AND p.id NOT IN (SELECT u.next_id FROM duly.unique_keys u WHERE u.next_id IS NOT NULL) LIMIT :n::integer

-- name: doctor_unheld Jobs that count on a unique key which they do not hold: another with the same key could be enqueued.
SELECT l.id FROM (
@doctor_live
) l
WHERE (l.hold = 2 OR l.hold = 1 AND l.place <> 'running') AND NOT EXISTS (SELECT 1 FROM duly.unique_keys u WHERE u.job_id = l.id)
  AND NOT EXISTS (SELECT 1 FROM duly.parked p WHERE p.id = l.id AND p.reason = 'unique')
LIMIT :n::integer

-- name: doctor_recurring_nowhere Recurring jobs that are enabled and in no place: they would never run again.
SELECT r.id FROM duly.recurring r JOIN duly.jobs j ON j.id = r.id JOIN duly.schedules s ON s.id = r.id
WHERE r.enabled AND NOT EXISTS (SELECT 1 FROM duly.scheduled p WHERE p.id = r.id) AND NOT EXISTS (SELECT 1 FROM duly.waiting p WHERE p.id = r.id)
  AND NOT EXISTS (SELECT 1 FROM duly.running p WHERE p.id = r.id) AND NOT EXISTS (SELECT 1 FROM duly.parked p WHERE p.id = r.id)
LIMIT :n::integer

-- name: doctor_disabled_placed Recurring jobs that are disabled and would run all the same.
SELECT r.id FROM duly.recurring r JOIN duly.jobs j ON j.id = r.id JOIN duly.schedules s ON s.id = r.id
WHERE NOT r.enabled AND (EXISTS (SELECT 1 FROM duly.scheduled p WHERE p.id = r.id) OR EXISTS (SELECT 1 FROM duly.waiting p WHERE p.id = r.id)
   OR EXISTS (SELECT 1 FROM duly.parked p WHERE p.id = r.id) OR EXISTS (SELECT 1 FROM duly.ended p WHERE p.id = r.id))
LIMIT :n::integer

-- name: doctor_disabled Recurring jobs that duly itself disabled, and why.
SELECT r.disabled_by, r.disabled_reason, count(*), min(s.task), min(s.key) FROM duly.recurring r JOIN duly.schedules s ON s.id = r.id
WHERE NOT r.enabled AND (r.disabled_by = 'duly' OR r.disabled_by >= 'duly:' AND r.disabled_by < 'duly;')
GROUP BY r.disabled_by, r.disabled_reason ORDER BY 3 DESC LIMIT :n::integer

-- name: doctor_partial Recurring jobs of whose three rows one is missing: has it the job, the schedule, how it stands?
SELECT s.id, EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = s.id) AS job, true AS schedule, EXISTS (SELECT 1 FROM duly.recurring r WHERE r.id = s.id) AS standing
FROM duly.schedules s
WHERE NOT EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = s.id) OR NOT EXISTS (SELECT 1 FROM duly.recurring r WHERE r.id = s.id)
UNION ALL
SELECT r.id, EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = r.id), false, true FROM duly.recurring r
WHERE NOT EXISTS (SELECT 1 FROM duly.schedules s WHERE s.id = r.id)
UNION ALL
SELECT l.id, true, false, false FROM (
@doctor_live
) l
WHERE l.hold IN (4, 5) AND EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = l.id)
  AND NOT EXISTS (SELECT 1 FROM duly.schedules s WHERE s.id = l.id) AND NOT EXISTS (SELECT 1 FROM duly.recurring r WHERE r.id = l.id)
LIMIT :n::integer

-- name: doctor_overdue Finished jobs that should have been forgotten: how many, counted no further than :n, and since when.
SELECT count(*), :now - min(o.finished_at) FROM (
    SELECT e.finished_at FROM duly.ended e WHERE e.state = :state::text AND e.finished_at < :now - :keep_us::bigint
    AND NOT EXISTS (SELECT 1 FROM duly.unique_keys u WHERE u.job_id = e.id) ORDER BY e.finished_at, e.id LIMIT :n::integer) o

-- name: doctor_old_rollups Counts that should have been forgotten: how many.
SELECT count(*) FROM duly.rollups WHERE period_at < :now - :keep_us::bigint

-- name: lock_job [postgres] Hold a job's own row, so that two who mend do not both.
SELECT id FROM duly.jobs WHERE id = :id::uuid FOR UPDATE

-- name: lock_job [sqlite] Find a job; the write lock is already ours.
SELECT id FROM duly.jobs WHERE id = :id

-- name: lock_places [postgres] Hold a job in every place that it is in.
SELECT 'scheduled' FROM (SELECT 1 FROM duly.scheduled WHERE id = :id::uuid FOR UPDATE) a
UNION ALL SELECT 'waiting' FROM (SELECT 1 FROM duly.waiting WHERE id = :id::uuid FOR UPDATE) b
UNION ALL SELECT 'parked' FROM (SELECT 1 FROM duly.parked WHERE id = :id::uuid FOR UPDATE) c
UNION ALL SELECT 'running' FROM (SELECT 1 FROM duly.running WHERE id = :id::uuid FOR UPDATE) d

-- name: places_of Every place that a job is in.
SELECT 'scheduled', token, attempt, crashes, hold, run_at, NULL FROM duly.scheduled WHERE id = :id::uuid
UNION ALL SELECT 'waiting', token, attempt, crashes, hold, run_at, NULL FROM duly.waiting WHERE id = :id::uuid
UNION ALL SELECT 'parked', token, attempt, crashes, hold, run_at, reason FROM duly.parked WHERE id = :id::uuid
UNION ALL SELECT 'running', token, attempt, crashes, hold, run_at, NULL FROM duly.running WHERE id = :id::uuid
UNION ALL SELECT 'ended', token, attempt, COALESCE(crashes, 0), COALESCE(hold, 0), finished_at, state FROM duly.ended WHERE id = :id::uuid

-- name: drop_scheduled Out of the schedule, whatever else there is of it.
DELETE FROM duly.scheduled WHERE id = :id::uuid

-- name: drop_waiting Out of its lane, whatever else there is of it.
DELETE FROM duly.waiting WHERE id = :id::uuid

-- name: drop_parked Out of parking, whatever else there is of it.
DELETE FROM duly.parked WHERE id = :id::uuid

-- name: end_as_it_ran A job that was lost had ended, as its last run says.
INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes, hold, reason)
VALUES (:id::uuid, :state::text, COALESCE(:finished_at::bigint, :now), :token::bigint, :attempt::integer, :crashes::smallint, :hold::smallint, :reason::text)

-- name: key_held_by The unique key that a job holds, in which scope.
SELECT scope FROM duly.unique_keys WHERE job_id = :id::uuid

-- name: is_dead_key Who holds a key, if that one is gone or has ended. After it was locked.
SELECT u.job_id FROM duly.unique_keys u WHERE u.tenant = :tenant::text AND u.key = :key::text
AND (NOT EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = u.job_id)
     OR (u.scope IN (1, 2) AND EXISTS (SELECT 1 FROM duly.ended e WHERE e.id = u.job_id)))

-- name: drop_key Nobody holds this key any more.
DELETE FROM duly.unique_keys WHERE tenant = :tenant::text AND key = :key::text

-- name: free_scheduled A job that is held by nothing any more, no schedule and no key, is one as any other.
UPDATE duly.scheduled SET hold = 0 WHERE id = :id::uuid

-- name: free_waiting A job that is held by nothing any more, no schedule and no key, is one as any other.
UPDATE duly.waiting SET hold = 0 WHERE id = :id::uuid

-- name: free_parked A job that is held by nothing any more, no schedule and no key, is one as any other.
UPDATE duly.parked SET hold = 0 WHERE id = :id::uuid

-- name: free_running A job that is held by nothing any more, no schedule and no key, is one as any other.
UPDATE duly.running SET hold = 0 WHERE id = :id::uuid

-- name: limit_attempts What never ended had no end of attempts.
UPDATE duly.jobs SET max_attempts = :most::integer WHERE id = :id::uuid AND max_attempts > :most::integer

-- name: insert_lost_standing How a recurring job stands, as far as its place tells.
INSERT INTO duly.recurring (id, enabled, next_run_at, tick_at, token, disabled_at, disabled_by, disabled_reason)
VALUES (:id::uuid, :enabled::boolean, :next_run_at::bigint, :next_run_at::bigint, :token::bigint,
        CASE WHEN :enabled::boolean THEN NULL ELSE :now END, :by::text, :reason::text)
ON CONFLICT DO NOTHING
