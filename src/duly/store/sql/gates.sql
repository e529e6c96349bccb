-- name: closed_gates Which queues, tasks and tenants are paused at this moment.
SELECT scope, name FROM duly.gates WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)

-- name: paused_gates What is paused, since when, until when, by whom and why.
SELECT scope, name, paused_at, paused_until, paused_by, paused_reason FROM duly.gates
WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now) ORDER BY scope, name

-- name: pause_gate Close a gate. Paused again, it keeps since when.
INSERT INTO duly.gates (scope, name, paused_at, paused_until, paused_by, paused_reason)
VALUES (:scope::text, :name::text, :now, COALESCE(:until::bigint, :now + :for_us::bigint), :by::text, :reason::text)
ON CONFLICT (scope, name) DO UPDATE SET
    paused_at = COALESCE(duly.gates.paused_at, excluded.paused_at), paused_until = excluded.paused_until,
    paused_by = excluded.paused_by, paused_reason = excluded.paused_reason

-- name: resume_gate Open a gate. Says whether it was closed.
DELETE FROM duly.gates WHERE scope = :scope::text AND name = :name::text AND paused_at IS NOT NULL RETURNING name

-- name: any_pause_over Whether a gate is still closed though its time is over.
SELECT 1 FROM duly.gates WHERE paused_at IS NOT NULL AND paused_until <= :now LIMIT 1

-- name: reopen_gates Open the gates whose time is over.
DELETE FROM duly.gates WHERE paused_at IS NOT NULL AND paused_until <= :now RETURNING scope, name

-- name: weights The tenants whose weight is not 1.
SELECT name, weight FROM duly.tenants WHERE weight <> 1

-- name: unfair_queues The queues in which tenants do not take turns.
SELECT name FROM duly.queues WHERE NOT fair

-- name: set_fair Whether tenants take turns in a queue.
INSERT INTO duly.queues (name, fair) VALUES (:queue::text, :fair::boolean) ON CONFLICT (name) DO UPDATE SET fair = excluded.fair

-- name: set_weight How much of a shared queue a tenant may have.
INSERT INTO duly.tenants (name, weight) VALUES (:name::text, :weight::real)
ON CONFLICT (name) DO UPDATE SET weight = excluded.weight
