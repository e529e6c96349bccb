-- All lock in one order: the row in recurring, then the job in its place, then whatever a mirror touches.

-- name: find_recurring The id of a recurring job: one index probe.
SELECT id FROM duly.schedules WHERE tenant = :tenant::text AND task = :task::text AND key = :key::text

-- name: find_recurring_by_name The id of a recurring job by its name.
SELECT id FROM duly.schedules WHERE tenant = :tenant::text AND name = :name::text

-- part: recurring_columns A recurring job and how it stands.
SELECT s.id, s.tenant, s.task, s.key, s.name, s.description, s.rule, s.anchor_at, s.misfire, s.grace_us, s.cap, s.overlap, s.failure,
       s.pause_after, s.declared, s.declared_in, s.created_by, s.created_at, s.updated_at,
       r.enabled, r.next_run_at, r.tick_at, r.last_tick_at, r.last_run_at, r.failures, r.last_outcome, r.last_error,
       r.disabled_at, r.disabled_by, r.disabled_reason, j.queue, j.priority, j.args::text, j.timeout_us, j.retry,
       u.claimed_at, :now
FROM duly.schedules s JOIN duly.recurring r ON r.id = s.id JOIN duly.jobs j ON j.id = s.id LEFT JOIN duly.running u ON u.id = s.id

-- name: get_recurring One recurring job; with a tenant, only that tenant's.
@recurring_columns
WHERE s.id = :id::uuid AND (:tenant::text IS NULL OR s.tenant = :tenant::text)

-- name: list_recurring Recurring jobs by tenant, task and key, from one on.
@recurring_columns
WHERE (:task::text IS NULL OR s.task = :task::text)
  AND (:enabled::boolean IS NULL OR r.enabled = :enabled::boolean)
  AND (s.tenant, s.task, s.key) > (:after_tenant::text, :after_task::text, :after_key::text)
ORDER BY s.tenant, s.task, s.key LIMIT :n::integer OFFSET :skip::integer

-- name: list_recurring_of A tenant's recurring jobs by task and key, from one on.
@recurring_columns
WHERE s.tenant = :tenant::text AND (:task::text IS NULL OR s.task = :task::text)
  AND (:enabled::boolean IS NULL OR r.enabled = :enabled::boolean)
  AND (s.task, s.key) > (:after_task::text, :after_key::text)
ORDER BY s.tenant, s.task, s.key LIMIT :n::integer OFFSET :skip::integer

-- name: count_recurring How many recurring jobs are enabled, disabled, and failed when they last ran.
SELECT count(*) FILTER (WHERE enabled), count(*) FILTER (WHERE NOT enabled), count(*) FILTER (WHERE enabled AND failures > 0) FROM duly.recurring

-- name: lock_recurring [postgres] Hold one recurring job until this transaction ends. What is read of it comes after.
SELECT id FROM duly.recurring WHERE id = :id::uuid FOR UPDATE

-- name: lock_recurring [sqlite] Find one recurring job; the write lock is already ours.
SELECT id FROM duly.recurring WHERE id = :id

-- name: touch_recurring Hold one recurring job by writing it: of two transactions that each see one moment only, the later is refused.
UPDATE duly.recurring SET token = token WHERE id = :id::uuid RETURNING id

-- name: insert_schedule A new recurring job's schedule, unless there is one.
INSERT INTO duly.schedules (id, tenant, task, key, name, description, rule, anchor_at, misfire, grace_us, cap, overlap, failure, pause_after,
                            declared, declared_in, created_by, created_at, updated_at)
VALUES (:id::uuid, :tenant::text, :task::text, :key::text, :name::text, :description::text, :rule::text, :now, :misfire::text, :grace_us::bigint,
        :cap::integer, :overlap::text, :failure::text, :pause_after::integer, :declared::text, :declared_in::text, :created_by::text, :now, :now)
ON CONFLICT DO NOTHING RETURNING anchor_at

-- name: insert_recurring How a new recurring job stands.
INSERT INTO duly.recurring (id, enabled, next_run_at, tick_at, disabled_at, disabled_by, disabled_reason)
VALUES (:id::uuid, :enabled::boolean, :next_run_at::bigint, :next_run_at::bigint, CASE WHEN :enabled::boolean THEN NULL ELSE :now END, :disabled_by::text, :disabled_reason::text)

-- name: insert_recurring_job What a new recurring job runs.
INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, retry, timeout_us, created_at, enqueued_by, tags, limit_key)
VALUES (:id::uuid, :task::text, :queue::text, :tenant::text, :args::json, :priority::smallint, :max_attempts::integer, :retry::text,
        :timeout_us::bigint, :now, :created_by::text, :tags::text, NULLIF(:limit_key::text, ''))

-- name: update_schedule A recurring job's schedule changes.
UPDATE duly.schedules SET name = :name::text, description = :description::text, rule = :rule::text, anchor_at = :anchor_at::bigint,
    misfire = :misfire::text, grace_us = :grace_us::bigint, cap = :cap::integer, overlap = :overlap::text, failure = :failure::text,
    pause_after = :pause_after::integer, declared = :declared::text, declared_in = :declared_in::text, updated_at = :now
WHERE id = :id::uuid

-- name: is_misplaced Whether a recurring job cannot stay where it is with the arguments it gets: they give it another key ('' leaves it its own), or it was set aside for the old ones.
SELECT j.id FROM duly.jobs j WHERE j.id = :id::uuid
  AND (EXISTS (SELECT 1 FROM duly.parked p WHERE p.id = j.id AND p.reason = 'arguments')
    OR (:limit_key::text IS NULL AND j.limit_key IS NOT NULL) OR (:limit_key::text <> '' AND COALESCE(j.limit_key, '') <> :limit_key::text))

-- name: update_recurring_job What a recurring job runs changes.
UPDATE duly.jobs SET queue = :queue::text, args = :args::json, priority = :priority::smallint, max_attempts = COALESCE(:max_attempts::integer, max_attempts),
    retry = :retry::text, timeout_us = :timeout_us::bigint, limit_key = CASE WHEN :limit_key::text = '' THEN limit_key ELSE :limit_key::text END
WHERE id = :id::uuid

-- name: tags_of The tags of a job.
SELECT tags FROM duly.jobs WHERE id = :id::uuid

-- name: set_tags A job's tags change.
UPDATE duly.jobs SET tags = :tags::text WHERE id = :id::uuid

-- name: place_recurring A recurring job waits for its time.
INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, token, attempt, crashes, hold)
SELECT j.id, :run_at::bigint, j.queue, j.tenant, j.task, j.priority, :token::bigint, 0, 0, :hold::smallint FROM duly.jobs j WHERE j.id = :id::uuid

-- name: set_recurring How a recurring job stands changes, by hand.
UPDATE duly.recurring SET enabled = :enabled::boolean, next_run_at = :next_run_at::bigint, tick_at = :tick_at::bigint, token = :token::bigint,
    failures = :failures::integer,
    disabled_at = CASE WHEN :enabled::boolean THEN NULL ELSE COALESCE(disabled_at, :now) END,
    disabled_by = CASE WHEN :enabled::boolean THEN NULL ELSE :disabled_by::text END,
    disabled_reason = CASE WHEN :enabled::boolean THEN NULL ELSE :disabled_reason::text END
WHERE id = :id::uuid

-- name: recurring_token The fence of a recurring job that is in no place.
SELECT token FROM duly.recurring WHERE id = :id::uuid

-- name: delete_schedule Forget a recurring job's schedule.
DELETE FROM duly.schedules WHERE id = :id::uuid

-- name: delete_recurring Forget how a recurring job stands.
DELETE FROM duly.recurring WHERE id = :id::uuid

-- name: delete_running_one Take a run away from whoever has it; its end will be refused.
DELETE FROM duly.running WHERE id = :id::uuid

-- name: declared_before What a module declared at start-up, and what is not disabled for being declared no more.
SELECT s.id, s.tenant, s.task, s.key, s.declared, r.enabled, r.disabled_by FROM duly.schedules s JOIN duly.recurring r ON r.id = s.id
WHERE s.declared_in = :module::text

-- name: occurrences [postgres] Which occurrences the claimed recurring jobs stand for, and what the worker must know of their rules.
SELECT r.id, r.tick_at, s.tenant, s.task, s.key, s.rule, s.anchor_at, s.misfire, s.grace_us, s.failure
FROM duly.recurring r JOIN duly.schedules s ON s.id = r.id WHERE r.id = ANY (:ids::uuid[])

-- name: occurrences [sqlite] Which occurrences the claimed recurring jobs stand for, and what the worker must know of their rules.
SELECT r.id, r.tick_at, s.tenant, s.task, s.key, s.rule, s.anchor_at, s.misfire, s.grace_us, s.failure
FROM json_each(:ids) e CROSS JOIN duly.recurring r ON r.id = e.value CROSS JOIN duly.schedules s ON s.id = r.id

-- name: lock_ending [postgres] Hold the recurring jobs whose runs end. Those that somebody else holds are left out: they come later.
SELECT r.id FROM duly.recurring r WHERE r.id = ANY (:ids::uuid[]) ORDER BY r.id FOR UPDATE SKIP LOCKED

-- part: is_elsewhere A run whose job was edited meanwhile: another place is its own now than the one it came from.
(u.queue <> j.queue OR u.priority <> j.priority OR s.overlap = 'allow')

-- name: ending [postgres] The runs that end, still held by their tokens, and how their recurring jobs stand. After they were locked.
SELECT r.id, u.token, u.attempt, u.claimed_at, u.cancel_at, r.enabled, r.tick_at, r.next_run_at, r.failures,
       s.tenant, s.task, s.key, s.rule, s.anchor_at, s.misfire, s.cap, s.overlap, s.failure, s.pause_after, :now, m.sql, COALESCE(m.hook, false), u.run_at,
@is_elsewhere
FROM unnest((SELECT :ids::uuid[]), :tokens::bigint[]) AS b(id, token)
JOIN duly.running u ON u.id = ANY (ARRAY[b.id]) AND u.token = b.token
JOIN duly.recurring r ON r.id = ANY (ARRAY[b.id]) JOIN duly.schedules s ON s.id = ANY (ARRAY[b.id])
JOIN duly.jobs j ON j.id = ANY (ARRAY[b.id]) LEFT JOIN duly.mirrors m ON m.task = s.task

-- name: ending [sqlite] The runs that end, still held by their tokens, and how their recurring jobs stand.
SELECT r.id, u.token, u.attempt, u.claimed_at, u.cancel_at, r.enabled, r.tick_at, r.next_run_at, r.failures,
       s.tenant, s.task, s.key, s.rule, s.anchor_at, s.misfire, s.cap, s.overlap, s.failure, s.pause_after, :now, m.sql, COALESCE(m.hook, 0), u.run_at,
@is_elsewhere
FROM json_each(:batch) b CROSS JOIN duly.running u ON u.id = json_extract(b.value, '$[0]') AND u.token = json_extract(b.value, '$[1]')
CROSS JOIN duly.recurring r ON r.id = u.id CROSS JOIN duly.schedules s ON s.id = u.id CROSS JOIN duly.jobs j ON j.id = u.id LEFT JOIN duly.mirrors m ON m.task = s.task

-- name: move_recurring A recurring job that was edited while it ran waits where it belongs now; if it makes a job per tick (hold 5), it has no attempts.
UPDATE duly.scheduled SET queue = (SELECT j.queue FROM duly.jobs j WHERE j.id = :id::uuid), priority = (SELECT j.priority FROM duly.jobs j WHERE j.id = :id::uuid),
    hold = (SELECT CASE WHEN s.overlap = 'allow' THEN 5 ELSE 4 END FROM duly.schedules s WHERE s.id = :id::uuid),
    attempt = CASE WHEN (SELECT s.overlap FROM duly.schedules s WHERE s.id = :id::uuid) = 'allow' THEN 0 ELSE attempt END,
    crashes = CASE WHEN (SELECT s.overlap FROM duly.schedules s WHERE s.id = :id::uuid) = 'allow' THEN 0 ELSE crashes END
WHERE id = :id::uuid

-- name: edited_run When the run of a recurring job was due, if the job was edited since and has another place now.
SELECT u.run_at FROM duly.running u JOIN duly.jobs j ON j.id = u.id JOIN duly.schedules s ON s.id = u.id
WHERE u.id = :id::uuid AND
@is_elsewhere

-- name: update_ended [postgres] How recurring jobs stand after a run.
UPDATE duly.recurring r SET enabled = b.enabled, next_run_at = b.next_run_at, tick_at = b.tick_at, failures = b.failures, token = b.token,
    last_run_at = COALESCE(b.last_run_at, r.last_run_at), last_outcome = COALESCE(b.last_outcome, r.last_outcome),
    last_error = CASE WHEN b.last_outcome IS NULL THEN r.last_error ELSE b.last_error END,
    disabled_at = CASE WHEN b.disabled_reason IS NULL THEN r.disabled_at ELSE :now END,
    disabled_by = CASE WHEN b.disabled_reason IS NULL THEN r.disabled_by ELSE 'duly' END,
    disabled_reason = COALESCE(b.disabled_reason, r.disabled_reason)
FROM unnest((SELECT :ids::uuid[]), :enableds::boolean[], :nexts::bigint[], :ticks::bigint[], :failureses::integer[], :tokens::bigint[],
            :lasts::bigint[], :outcomes::text[], :errors::text[], :reasons::text[])
    AS b(id, enabled, next_run_at, tick_at, failures, token, last_run_at, last_outcome, last_error, disabled_reason)
WHERE r.id = b.id

-- name: update_ended [sqlite] How a recurring job stands after a run.
UPDATE duly.recurring SET enabled = :enabled, next_run_at = :next_run_at, tick_at = :tick_at, failures = :failures, token = :token,
    last_run_at = COALESCE(:last_run_at, last_run_at), last_outcome = COALESCE(:last_outcome, last_outcome),
    last_error = CASE WHEN :last_outcome IS NULL THEN last_error ELSE :last_error END,
    disabled_at = CASE WHEN :disabled_reason IS NULL THEN disabled_at ELSE :now END,
    disabled_by = CASE WHEN :disabled_reason IS NULL THEN disabled_by ELSE 'duly' END,
    disabled_reason = COALESCE(:disabled_reason, disabled_reason)
WHERE id = :id

-- name: due_spawning [postgres] Schedules that make a job per tick and have one due; held, those that others hold left out.
SELECT r.id FROM duly.scheduled d JOIN duly.recurring r ON r.id = d.id
WHERE d.hold = 5 AND d.run_at <= :now ORDER BY d.run_at, d.id LIMIT :n::integer FOR UPDATE OF r SKIP LOCKED

-- name: due_spawning [sqlite] Schedules that make a job per tick and have one due.
SELECT id FROM duly.scheduled WHERE hold = 5 AND run_at <= :now ORDER BY run_at, id LIMIT :n

-- name: any_spawning Whether a schedule that makes a job per tick has one due.
SELECT 1 FROM duly.scheduled WHERE hold = 5 AND run_at <= :now LIMIT 1

-- name: spawning One schedule that makes a job per tick. After it was locked.
SELECT d.id, d.run_at, r.tick_at, r.last_tick_at, s.tenant, s.task, s.key, s.rule, s.anchor_at, s.misfire, s.grace_us, s.cap, :now,
       r.failures, r.last_run_at
FROM duly.scheduled d JOIN duly.recurring r ON r.id = d.id JOIN duly.schedules s ON s.id = d.id
WHERE d.id = :id::uuid AND d.hold = 5 AND d.run_at <= :now

-- name: spawn_job The job of one tick.
INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, retry, timeout_us, created_at, enqueued_by, tags, headers, limit_key)
SELECT :job_id::uuid, j.task, j.queue, j.tenant, j.args, j.priority, j.max_attempts, j.retry, j.timeout_us, :now,
       :enqueued_by::text, j.tags, :headers::text, j.limit_key
FROM duly.jobs j WHERE j.id = :id::uuid ON CONFLICT DO NOTHING RETURNING id

-- name: spawn_place The job of one tick goes into its lane.
INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority)
SELECT j.queue, j.tenant, j.task,
       :tick_at::bigint - j.priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = j.queue), :horizon::bigint) / 100),
       j.id, :tick_at::bigint, j.priority
FROM duly.jobs j WHERE j.id = :job_id::uuid AND j.limit_key IS NULL RETURNING queue, tenant, task, rank

-- name: spawn_aside The job of one tick, which has a key, stands aside until there is room.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, hold, parked_at, reason, mark, rank)
SELECT j.id, j.queue, j.tenant, j.task, :tick_at::bigint, j.priority, 0, :now, 'arrived', j.limit_key,
       :tick_at::bigint - j.priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = j.queue), :horizon::bigint) / 100)
FROM duly.jobs j WHERE j.id = :job_id::uuid

-- name: move_spawning The schedule waits for its next tick.
UPDATE duly.scheduled SET run_at = :next_run_at::bigint WHERE id = :id::uuid

-- name: note_spawned How a schedule that makes a job per tick stands.
UPDATE duly.recurring SET next_run_at = :next_run_at::bigint, tick_at = :next_run_at::bigint, last_tick_at = COALESCE(:last_tick_at::bigint, last_tick_at),
    last_run_at = CASE WHEN :last_tick_at::bigint IS NULL THEN last_run_at ELSE :now END,
    last_outcome = CASE WHEN :last_tick_at::bigint IS NULL THEN last_outcome ELSE 'enqueued' END,
    last_error = CASE WHEN :last_tick_at::bigint IS NULL THEN last_error ELSE NULL END
WHERE id = :id::uuid

-- name: note_unmirrored What went wrong beside the ticks of a schedule that makes a job for each.
UPDATE duly.recurring SET last_error = :error::text WHERE id = :id::uuid

-- name: is_recurring Whether a job recurs.
SELECT id FROM duly.schedules WHERE id = :id::uuid

-- name: is_enabled Whether a recurring job is enabled. After it was locked.
SELECT id FROM duly.recurring WHERE id = :id::uuid AND enabled

-- name: keep_token A disabled job leaves its last place: the fence stays.
UPDATE duly.recurring SET token = CASE WHEN token > :token::bigint THEN token ELSE :token::bigint END WHERE id = :id::uuid

-- name: mirror_of What must happen beside every change of a task's recurring jobs.
SELECT sql, hook FROM duly.mirrors WHERE task = :task::text

-- name: set_mirror What must happen beside every change of a task's recurring jobs, from now on.
INSERT INTO duly.mirrors (task, sql, hook) VALUES (:task::text, :sql::text, :hook::boolean)
ON CONFLICT (task) DO UPDATE SET sql = excluded.sql, hook = excluded.hook

-- name: delete_mirror Nothing happens beside changes of a task's recurring jobs any more.
DELETE FROM duly.mirrors WHERE task = :task::text

-- name: save_here A point to go back to.
SAVEPOINT duly_here

-- name: back_to_here Take back what was done since.
ROLLBACK TO SAVEPOINT duly_here

-- name: past_here Keep what was done since.
RELEASE SAVEPOINT duly_here

-- name: wait_little [postgres] A mirror that has to wait for somebody's lock must not keep others waiting.
SET LOCAL lock_timeout = '50ms'

-- name: wait_in_queue [postgres] A job that others hold one after the other without a gap can only be had by standing in the queue.
SET LOCAL lock_timeout = '150ms'

-- name: wait_again [postgres] From here on wait for locks as always.
SET LOCAL lock_timeout = DEFAULT

-- name: recurring_page The next recurring jobs by id, and their fences.
SELECT id, token FROM duly.recurring WHERE id > :after::uuid ORDER BY id LIMIT :n::integer

-- name: prune_recurring_runs [postgres] Forget old runs of some recurring jobs, but not the newest of each.
WITH old AS MATERIALIZED (
    SELECT u.job_id, u.token FROM unnest((SELECT :ids::uuid[])) AS b(id) CROSS JOIN LATERAL (
        SELECT job_id, token, finished_at FROM duly.runs
        WHERE job_id = b.id AND token <= (SELECT k.token FROM duly.runs k WHERE k.job_id = b.id ORDER BY k.job_id DESC, k.token DESC OFFSET :keep::integer LIMIT 1)
        ORDER BY job_id, token LIMIT :most::integer) u
    WHERE u.finished_at <= :now - :keep_us::bigint
), gone AS (
    DELETE FROM duly.runs r USING old o WHERE r.job_id = o.job_id AND r.token = o.token RETURNING 1
)
SELECT count(*) FROM gone

-- name: prune_recurring_runs [sqlite] Forget old runs of a recurring job, but not the newest.
DELETE FROM duly.runs WHERE job_id = :id AND token IN (
    SELECT token FROM duly.runs
    WHERE job_id = :id AND token <= (SELECT token FROM duly.runs WHERE job_id = :id ORDER BY token DESC LIMIT 1 OFFSET :keep)
      AND finished_at <= :now - :keep_us
    ORDER BY token LIMIT :most)
RETURNING token

-- name: leave_place A schedule that has ended waits for nothing.
DELETE FROM duly.scheduled WHERE id = :id::uuid

-- name: end_spawning A schedule that has ended.
UPDATE duly.recurring SET enabled = false, disabled_at = :now, disabled_by = 'duly', disabled_reason = :reason::text WHERE id = :id::uuid
