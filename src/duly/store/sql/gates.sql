-- name: paused_gates What is paused, since when, until when, by whom and why.
SELECT scope, name, paused_at, paused_until, paused_by, paused_reason FROM duly.gates
WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now) ORDER BY scope, name

-- name: pause_gate Close a gate. Paused again, it keeps since when.
INSERT INTO duly.gates (scope, name, paused_at, paused_until, paused_by, paused_reason)
VALUES (:scope::text, :name::text, :now, COALESCE(:until::bigint, :now + :for_us::bigint), :by::text, :reason::text)
ON CONFLICT (scope, name) DO UPDATE SET
    paused_at = COALESCE(duly.gates.paused_at, excluded.paused_at), paused_until = excluded.paused_until,
    paused_by = excluded.paused_by, paused_reason = excluded.paused_reason

-- name: resume_gate Open a gate: end its pause, or if it has none its block. Says whether it was closed.
UPDATE duly.gates SET paused_at = NULL, paused_until = NULL, paused_by = NULL, paused_reason = NULL,
    blocked_until = CASE WHEN paused_at IS NULL THEN NULL ELSE blocked_until END,
    blocked_reason = CASE WHEN paused_at IS NULL THEN NULL ELSE blocked_reason END
WHERE scope = :scope::text AND name = :name::text AND (paused_at IS NOT NULL OR blocked_until > :now) RETURNING name

-- name: any_pause_over Whether a gate is still closed though its time is over.
SELECT 1 FROM duly.gates WHERE (paused_at IS NOT NULL AND paused_until <= :now) OR blocked_until <= :now LIMIT 1

-- name: reopen_gates Open the gates whose time is over.
UPDATE duly.gates SET
    paused_at = CASE WHEN paused_until <= :now THEN NULL ELSE paused_at END,
    paused_by = CASE WHEN paused_until <= :now THEN NULL ELSE paused_by END,
    paused_reason = CASE WHEN paused_until <= :now THEN NULL ELSE paused_reason END,
    paused_until = CASE WHEN paused_until <= :now THEN NULL ELSE paused_until END,
    blocked_reason = CASE WHEN blocked_until <= :now THEN NULL ELSE blocked_reason END,
    blocked_until = CASE WHEN blocked_until <= :now THEN NULL ELSE blocked_until END
WHERE (paused_at IS NOT NULL AND paused_until <= :now) OR blocked_until <= :now RETURNING scope, name

-- name: block_gate Keep a gate closed for a while because what is behind it asked for it. The longest wish counts.
INSERT INTO duly.gates (scope, name, blocked_until, blocked_reason) VALUES (:scope::text, :name::text, :now + :for_us::bigint, :reason::text)
ON CONFLICT (scope, name) DO UPDATE SET
    blocked_reason = CASE WHEN COALESCE(duly.gates.blocked_until, 0) > excluded.blocked_until THEN duly.gates.blocked_reason ELSE excluded.blocked_reason END,
    blocked_until = CASE WHEN COALESCE(duly.gates.blocked_until, 0) > excluded.blocked_until THEN duly.gates.blocked_until ELSE excluded.blocked_until END

-- name: weights The tenants whose weight is not 1.
SELECT name, weight FROM duly.tenants WHERE weight <> 1

-- name: unfair_queues The queues in which tenants do not take turns.
SELECT name FROM duly.queues WHERE NOT fair

-- name: set_fair Whether tenants take turns in a queue.
INSERT INTO duly.queues (name, fair) VALUES (:queue::text, :fair::boolean) ON CONFLICT (name) DO UPDATE SET fair = excluded.fair

-- name: set_weight How much of a shared queue a tenant may have.
INSERT INTO duly.tenants (name, weight) VALUES (:name::text, :weight::real)
ON CONFLICT (name) DO UPDATE SET weight = excluded.weight
