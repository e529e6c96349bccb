-- What belongs to one tenant. Each statement is given the tenant, and finds by index what is that tenant's: what it costs does not
-- depend on how much others have. `tenant <> ''` stands beside `tenant = ...` so that the partial indexes of 0006 may be used.

-- name: is_of_tenant Whether a job is this tenant's. Another's and one that never was answer alike.
SELECT 1 FROM duly.jobs WHERE id = :id::uuid AND tenant = :tenant::text

-- name: get_job_of One job of a tenant with the place it stands in.
@job_columns
FROM duly.jobs j LEFT JOIN (SELECT * FROM duly.places WHERE id = :id::uuid) p ON p.id = j.id WHERE j.id = :id::uuid AND j.tenant = :tenant::text

-- name: is_recurring_of Whether a job is this tenant's and recurs.
SELECT id FROM duly.schedules WHERE id = :id::uuid AND tenant = :tenant::text

-- part: own What a list of one tenant's jobs is narrowed to.
e.tenant = :tenant::text AND e.tenant <> '' AND e.id < COALESCE(:before_id::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
  AND (:task::text IS NULL OR e.task = :task::text) AND (:queue::text IS NULL OR e.queue = :queue::text)
  AND ((:tag::text IS NULL AND :text::text IS NULL)
   OR (SELECT (:tag::text IS NULL OR replace(j.tags, :tag::text, '') <> j.tags) AND (:text::text IS NULL OR replace(j.args::text, :text::text, '') <> j.args::text)
       FROM duly.jobs j WHERE j.id = e.id))

-- name: queues_with_jobs The queues in which anything waits: one index probe each.
WITH RECURSIVE q(queue) AS (
    SELECT min(queue) FROM duly.waiting
    UNION ALL
    SELECT (SELECT min(n.queue) FROM duly.waiting n WHERE n.queue > q.queue) FROM q WHERE q.queue IS NOT NULL
)
SELECT queue FROM q WHERE queue IS NOT NULL

-- name: list_jobs_of Which jobs a tenant has, in whatever state, newest first.
SELECT e.id FROM duly.jobs e
WHERE
@own
ORDER BY e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_scheduled_of Which jobs of a tenant stand in `scheduled`, newest first.
SELECT e.id FROM duly.scheduled e
WHERE
@own
ORDER BY e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_waiting_of Which jobs of a tenant stand in `waiting` in one queue, newest first: by its lanes, and only then by id.
WITH own AS MATERIALIZED (
    SELECT id, queue, tenant, task FROM duly.waiting WHERE queue = :in_queue::text AND suspect IN (0, 1) AND tenant = :tenant::text
)
SELECT e.id FROM own e
WHERE
@own
ORDER BY e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_parked_of Which jobs of a tenant stand in `parked`, newest first.
SELECT e.id FROM duly.parked e
WHERE
@own
ORDER BY e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_running_of Which jobs of a tenant run, newest first. (All that run are looked at: as many as there are slots.)
SELECT e.id FROM duly.running e
WHERE
@own
ORDER BY e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_disabled_of Which jobs of a tenant recur, are disabled and do not run, newest first.
SELECT e.id FROM duly.schedules s JOIN duly.recurring r ON r.id = s.id JOIN duly.jobs e ON e.id = s.id
WHERE s.tenant = :tenant::text AND NOT r.enabled AND NOT EXISTS (SELECT 1 FROM duly.running u WHERE u.id = r.id) AND
@own
ORDER BY e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: list_ended_of Which jobs of a tenant ended so, the last to be enqueued first: `ended` is asked for the tenant's jobs by key.
SELECT e.id FROM duly.jobs e
WHERE (SELECT d.state FROM duly.ended d WHERE d.id = e.id) = :state::text AND
@own
ORDER BY e.id DESC LIMIT :limit::integer OFFSET :offset::integer

-- name: count_waiting_of How many jobs of a tenant wait in one queue, by task.
SELECT queue, tenant, task, count(*), min(run_at) FROM duly.waiting
WHERE queue = :in_queue::text AND suspect IN (0, 1) AND tenant = :tenant::text GROUP BY queue, tenant, task

-- name: some_waiting_of How many jobs of a tenant wait in one queue; no more than some are counted.
SELECT count(*) FROM (
    SELECT 1 FROM duly.waiting WHERE queue = :in_queue::text AND suspect IN (0, 1) AND tenant = :tenant::text LIMIT :most::integer) w

-- name: count_scheduled_of How many jobs of a tenant are scheduled, by queue and task.
SELECT queue, tenant, task, count(*), min(run_at) FROM duly.scheduled WHERE tenant = :tenant::text AND tenant <> '' GROUP BY queue, tenant, task

-- name: count_running_of How many jobs of a tenant run, by queue and task.
SELECT queue, tenant, task, count(*), min(claimed_at) FROM duly.running WHERE tenant = :tenant::text GROUP BY queue, tenant, task

-- name: count_parked_of How many jobs of a tenant are parked, by reason.
WITH own AS MATERIALIZED (SELECT reason FROM duly.parked WHERE tenant = :tenant::text AND tenant <> '')
SELECT reason, count(*) FROM own GROUP BY reason

-- name: count_ended_of How many jobs of a tenant ended, by state.
WITH own AS MATERIALIZED (
    SELECT (SELECT d.state FROM duly.ended d WHERE d.id = e.id) AS state FROM duly.jobs e WHERE e.tenant = :tenant::text AND e.tenant <> ''
)
SELECT state, count(*) FROM own WHERE state IS NOT NULL GROUP BY state

-- name: count_recurring_of How many recurring jobs of a tenant are enabled, disabled, and failed when they last ran.
SELECT count(*) FILTER (WHERE r.enabled), count(*) FILTER (WHERE NOT r.enabled), count(*) FILTER (WHERE r.enabled AND r.failures > 0)
FROM duly.schedules s JOIN duly.recurring r ON r.id = s.id WHERE s.tenant = :tenant::text

-- name: recent_runs_of The runs of a tenant's jobs that ended last. (`+` keeps SQLite from walking everybody's runs by time.)
SELECT r.job_id, r.token, r.attempt, r.outcome, r.started_at, r.finished_at, r.worker_id, r.error_kind, r.error, r.traceback, r.result, r.log
FROM duly.jobs e JOIN duly.runs r ON r.job_id = e.id
WHERE e.tenant = :tenant::text AND e.tenant <> '' AND (:task::text IS NULL OR e.task = :task::text)
ORDER BY +r.finished_at DESC, r.job_id DESC, r.token DESC LIMIT :n::integer

-- name: list_audit_of_tenant What was done to a tenant and its jobs, newest first.
SELECT id, at, who, via, action, job_id, tenant, task, subject, reason, before, after FROM duly.audit
WHERE tenant = :tenant::text AND tenant <> '' AND id < COALESCE(:before_id::bigint, 9223372036854775807)
  AND (:who::text IS NULL OR who = :who::text) AND (:action::text IS NULL OR action = :action::text)
  AND (:since_at::bigint IS NULL OR at >= :since_at::bigint) AND (:until_at::bigint IS NULL OR at < :until_at::bigint)
ORDER BY id DESC LIMIT :n::integer

-- name: weight_of How much of a shared queue a tenant may have, if that was said.
SELECT weight FROM duly.tenants WHERE name = :tenant::text

-- name: pause_of Whether a tenant is paused, since when, until when, by whom and why.
SELECT scope, name, paused_at, paused_until, paused_by, paused_reason FROM duly.gates
WHERE scope = 'tenant' AND name = :tenant::text AND paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)

-- name: limits_of_tenant What limits a tenant: how many may run, start or wait.
SELECT scope, name, slots, rate_n, rate_us, burst, most_waiting, refuses, breaker, meters_keys, by_hand, stamped, spent_until, used,
       blocked_until, blocked_reason, paused_at, paused_until, limited_at
FROM duly.gates
WHERE scope IN ('tenant', 'minute', 'day') AND name = :tenant::text
  AND (slots IS NOT NULL OR rate_n IS NOT NULL OR most_waiting IS NOT NULL OR blocked_until IS NOT NULL)
ORDER BY scope

-- name: next_tenant_name The next tenant by name that has jobs, recurring or not, a weight, or a gate: a few index probes.
SELECT min(o.name) FROM (
    SELECT min(tenant) AS name FROM duly.jobs WHERE tenant > :after::text AND tenant <> ''
    UNION ALL SELECT min(name) FROM duly.tenants WHERE name > :after::text
    UNION ALL SELECT min(name) FROM duly.gates WHERE scope = 'tenant' AND name > :after::text
    UNION ALL SELECT min(name) FROM duly.gates WHERE scope = 'minute' AND name > :after::text
    UNION ALL SELECT min(name) FROM duly.gates WHERE scope = 'day' AND name > :after::text) o

-- name: tenant_standing How a tenant stands: its weight, how many run and are parked (no more than some are counted), since when it is paused.
SELECT COALESCE((SELECT weight FROM duly.tenants WHERE name = :tenant::text), 1),
       (SELECT count(*) FROM (SELECT 1 FROM duly.running WHERE tenant = :tenant::text LIMIT :most::integer) r),
       (SELECT count(*) FROM (SELECT 1 FROM duly.parked WHERE tenant = :tenant::text AND tenant <> '' LIMIT :most::integer) p),
       (SELECT paused_at FROM duly.gates WHERE scope = 'tenant' AND name = :tenant::text AND paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now))
