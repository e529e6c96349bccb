-- name: run_held Whether a run still has its job, and whether it was asked to stop. Locks nothing: leases go on being renewed.
SELECT cancel_at, cancel_reason FROM duly.running WHERE id = :id::uuid AND token = :token::bigint

-- name: completed_runs [postgres] For each (id, token) pair whether it still runs, as committed, and how it ended if that is on record.
SELECT b.id, r.id IS NOT NULL, u.outcome FROM unnest((SELECT :ids::uuid[]), :tokens::bigint[]) AS b(id, token)
LEFT JOIN duly.running r ON r.id = ANY (ARRAY[b.id]) AND r.token = b.token
LEFT JOIN duly.runs u ON u.job_id = ANY (ARRAY[b.id]) AND u.token = b.token

-- name: completed_runs [sqlite] For each (id, token) pair whether it still runs, as committed, and how it ended if that is on record.
SELECT json_extract(b.value, '$[0]'), r.id IS NOT NULL, u.outcome FROM json_each(:batch) b
LEFT JOIN duly.running r ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]')
LEFT JOIN duly.runs u ON u.job_id = json_extract(b.value, '$[0]') AND u.token = json_extract(b.value, '$[1]')

-- name: runs_let_go [postgres] Which of these runs no open transaction is about to end.
SELECT r.id FROM unnest((SELECT :ids::uuid[]), :tokens::bigint[]) AS b(id, token)
JOIN duly.running r ON r.id = ANY (ARRAY[b.id]) AND r.token = b.token FOR KEY SHARE OF r SKIP LOCKED

-- name: runs_let_go [sqlite] Which of these runs are there; the write lock is ours, so no open transaction is about to end one.
SELECT r.id FROM json_each(:batch) b CROSS JOIN duly.running r
ON r.id = json_extract(b.value, '$[0]') AND r.token = json_extract(b.value, '$[1]')

-- name: set_run_log Keep the log lines of a run that is on record.
UPDATE duly.runs SET log = :log::text WHERE job_id = :id::uuid AND token = :token::bigint
