-- name: insert_audit Keep what somebody did.
INSERT INTO duly.audit (at, who, via, action, job_id, tenant, task, subject, reason, before, after)
VALUES (:now, :who::text, :via::text, :action::text, :job_id::uuid, :tenant::text, :task::text, :subject::text, :reason::text, :before::text, :after::text)

-- name: list_audit What was done, newest first.
SELECT id, at, who, via, action, job_id, tenant, task, subject, reason, before, after FROM duly.audit
WHERE (:who::text IS NULL OR who = :who::text) AND (:action::text IS NULL OR action = :action::text)
  AND (:tenant::text IS NULL OR tenant = :tenant::text)
  AND (:since_at::bigint IS NULL OR at >= :since_at::bigint) AND (:until_at::bigint IS NULL OR at < :until_at::bigint)
  AND (:before_id::bigint IS NULL OR id < :before_id::bigint)
ORDER BY id DESC LIMIT :n::integer

-- name: list_audit_of What was done to one job, newest first.
SELECT id, at, who, via, action, job_id, tenant, task, subject, reason, before, after FROM duly.audit
WHERE job_id = :job_id::uuid
  AND (:who::text IS NULL OR who = :who::text) AND (:action::text IS NULL OR action = :action::text)
  AND (:tenant::text IS NULL OR tenant = :tenant::text)
  AND (:since_at::bigint IS NULL OR at >= :since_at::bigint) AND (:until_at::bigint IS NULL OR at < :until_at::bigint)
  AND (:before_id::bigint IS NULL OR id < :before_id::bigint)
ORDER BY id DESC LIMIT :n::integer

-- name: prune_audit Forget what was done long ago.
DELETE FROM duly.audit WHERE at < :now - :keep_us::bigint

-- name: horizon_of How fast a queue ages, if that was said.
SELECT horizon_us FROM duly.queues WHERE name = :queue::text
