-- name: limits What is limited: every gate with slots or a rate, and what holds for the keys of each group.
SELECT scope, name, slots, rate_n, rate_us, burst, most_waiting, refuses, breaker, meters_keys, by_hand, stamped, spent_until, used,
       blocked_until, blocked_reason, paused_at, paused_until, limited_at
FROM duly.gates
WHERE slots IS NOT NULL OR rate_n IS NOT NULL OR most_waiting IS NOT NULL OR meters_keys OR breaker IS NOT NULL OR blocked_until IS NOT NULL
ORDER BY scope, name

-- name: lock_gate [postgres] Hold a gate, if there is one; says what it says and what the code declared.
SELECT slots, rate_n, rate_us, burst, most_waiting, refuses, breaker, meters_keys, by_hand, declared FROM duly.gates
WHERE scope = :scope::text AND name = :name::text FOR UPDATE

-- name: lock_gate [sqlite] What a gate says and what the code declared.
SELECT slots, rate_n, rate_us, burst, most_waiting, refuses, breaker, meters_keys, by_hand, declared FROM duly.gates
WHERE scope = :scope AND name = :name

-- name: declared_gates The gates of which the code has said something.
SELECT scope, name FROM duly.gates WHERE declared IS NOT NULL

-- name: metered_groups The groups of which some key has a rate that was set by hand.
SELECT name FROM duly.gates WHERE scope = 'keys' AND meters_keys

-- name: meter_keys Have claims take what starts off the rates of keys.
INSERT INTO duly.gates (scope, name, meters_keys) VALUES (:scope::text, :name::text, true)
ON CONFLICT (scope, name) DO UPDATE SET meters_keys = true

-- name: write_gate State what a gate says. Runs under a limit that is new are found by what they are first; of another rate as many are spent as were.
INSERT INTO duly.gates (scope, name, slots, rate_n, rate_us, burst, most_waiting, refuses, breaker, meters_keys, by_hand, declared, limited_at)
VALUES (:scope::text, :name::text, :slots::integer, :rate_n::integer, :rate_us::bigint, :burst::integer, :most_waiting::integer,
        :refuses::boolean, :breaker::text, :meters_keys::boolean, :by_hand::boolean, :declared::text, :now)
ON CONFLICT (scope, name) DO UPDATE SET
    slots = excluded.slots, rate_n = excluded.rate_n, rate_us = excluded.rate_us, burst = excluded.burst,
    most_waiting = excluded.most_waiting, refuses = excluded.refuses, breaker = excluded.breaker, meters_keys = excluded.meters_keys,
    by_hand = excluded.by_hand, declared = excluded.declared,
    stamped = CASE WHEN duly.gates.slots IS NULL THEN false ELSE duly.gates.stamped END, counted_from = 0,
    limited_at = CASE WHEN duly.gates.slots IS NULL THEN :now ELSE duly.gates.limited_at END,
    spent_until = CASE WHEN duly.gates.rate_us = excluded.rate_us AND (duly.gates.rate_n = excluded.rate_n OR (duly.gates.burst IS NULL AND excluded.burst IS NULL))
                       THEN duly.gates.spent_until
                       WHEN duly.gates.burst IS NULL OR excluded.burst IS NULL OR duly.gates.spent_until <= :now THEN 0
                       WHEN (duly.gates.spent_until - :now) * 1.0 * duly.gates.rate_n / duly.gates.rate_us >= excluded.burst
                       THEN :now + CAST(excluded.burst * 1.0 * excluded.rate_us / excluded.rate_n AS bigint)
                       ELSE :now + CAST((duly.gates.spent_until - :now) * 1.0 * duly.gates.rate_n / duly.gates.rate_us * excluded.rate_us / excluded.rate_n AS bigint) END

-- name: forget_gate A gate that says nothing any more.
DELETE FROM duly.gates
WHERE scope = :scope::text AND name = :name::text AND slots IS NULL AND rate_n IS NULL AND most_waiting IS NULL AND breaker IS NULL
  AND NOT meters_keys AND paused_at IS NULL AND blocked_until IS NULL AND declared IS NULL

-- name: unstamped Limits whose runs are not all marked: a claim that did not know of them may be under way.
SELECT scope, name, limited_at FROM duly.gates WHERE slots IS NOT NULL AND NOT stamped AND scope IN ('task', 'queue', 'tenant') LIMIT 100

-- name: bar_claims [postgres] Every claim reads the gates: once we have this lock, those that began before have ended, and later ones know all limits.
LOCK TABLE duly.gates IN ACCESS EXCLUSIVE MODE

-- name: stamp_running [postgres] Mark the runs that are counted under a limit, in the order in which all lock them.
WITH unmarked AS MATERIALIZED (
    SELECT id FROM duly.running
    WHERE CASE :scope::text WHEN 'task' THEN task WHEN 'queue' THEN queue ELSE tenant END = :name::text AND limited & :bit::smallint = 0
    ORDER BY id FOR UPDATE
)
UPDATE duly.running SET limited = limited | :bit::smallint WHERE id IN (SELECT id FROM unmarked)

-- name: stamp_running [sqlite] Mark the runs that are counted under a limit.
UPDATE duly.running SET limited = limited | :bit
WHERE CASE :scope WHEN 'task' THEN task WHEN 'queue' THEN queue ELSE tenant END = :name AND limited & :bit = 0

-- name: stamped All runs under a limit are marked: from now on they are found by their mark.
UPDATE duly.gates SET stamped = true, counted_from = 0 WHERE scope = :scope::text AND name = :name::text AND limited_at = :limited_at::bigint

-- name: gate_now [sqlite] A gate that is held, and how many live leases it has, without those whose runs the caller knows to have ended.
SELECT g.slots, g.rate_n, g.rate_us, g.burst, g.spent_until, g.used, :now,
       CASE WHEN g.slots IS NULL THEN 0
            WHEN NOT g.stamped THEN (SELECT count(*) FROM duly.running r WHERE r.leased_until > :lease_now
                 AND CASE :scope WHEN 'task' THEN r.task WHEN 'queue' THEN r.queue ELSE r.tenant END = :name)
            WHEN :scope = 'task' THEN (SELECT count(*) FROM duly.running r WHERE r.task = :name AND r.limited & 1 <> 0 AND r.leased_until > :lease_now)
            WHEN :scope = 'queue' THEN (SELECT count(*) FROM duly.running r WHERE r.queue = :name AND r.limited & 2 <> 0 AND r.leased_until > :lease_now)
            ELSE (SELECT count(*) FROM duly.running r WHERE r.tenant = :name AND r.limited & 4 <> 0 AND r.leased_until > :lease_now) END
       - (SELECT count(*) FROM json_each(:ended) e CROSS JOIN duly.running r ON r.id = json_extract(e.value, '$[0]') AND r.token = json_extract(e.value, '$[1]')
          WHERE g.slots IS NOT NULL AND r.leased_until > :lease_now AND CASE :scope WHEN 'task' THEN r.task WHEN 'queue' THEN r.queue ELSE r.tenant END = :name
            AND (NOT g.stamped OR r.limited & CASE :scope WHEN 'task' THEN 1 WHEN 'queue' THEN 2 ELSE 4 END <> 0)),
       g.meters_keys
FROM duly.gates g WHERE g.scope = :scope AND g.name = :name AND (g.slots IS NOT NULL OR g.meters_keys OR (g.rate_n IS NOT NULL AND NOT g.refuses))

-- name: spend_rate [sqlite] What starts now is taken off a rate.
UPDATE duly.gates SET
    spent_until = CASE WHEN burst IS NULL THEN :now - :now % rate_us ELSE max(spent_until, :now) + (:n * rate_us + rate_n - 1) / rate_n END,
    used = CASE WHEN burst IS NOT NULL THEN 0 WHEN spent_until = :now - :now % rate_us THEN used + :n ELSE :n END
WHERE scope = :scope AND name = :name AND rate_n IS NOT NULL AND NOT refuses

-- name: spend_keys [sqlite] What starts now is taken off the rates of the jobs' keys.
UPDATE duly.keys SET spent_until = max(spent_until, :now) + (s.n * rate_us + rate_n - 1) / rate_n
FROM (SELECT j.limit_key AS name, count(*) AS n FROM json_each(:ids) e CROSS JOIN duly.jobs j ON j.id = e.value
      WHERE j.limit_key IS NOT NULL GROUP BY j.limit_key) s
WHERE duly.keys.name = s.name AND rate_n IS NOT NULL

-- name: gate_rate The rate of a gate, and what of it is spent.
SELECT rate_n, rate_us, burst, spent_until, used, :now FROM duly.gates
WHERE scope = :scope::text AND name = :name::text AND rate_n IS NOT NULL AND NOT refuses

-- name: count_waiting_queue [postgres] How many jobs wait in a queue, up to a number.
SELECT count(*) FROM (
    (SELECT 1 FROM duly.waiting WHERE queue = :name::text LIMIT :most::integer)
    UNION ALL (SELECT 1 FROM duly.parked WHERE queue = :name::text AND reason IN ('arrived', 'key') LIMIT :most::integer)) w

-- name: count_waiting_queue [sqlite] How many jobs wait in a queue, up to a number.
SELECT (SELECT count(*) FROM (SELECT 1 FROM duly.waiting WHERE queue = :name LIMIT :most))
     + (SELECT count(*) FROM (SELECT 1 FROM duly.parked WHERE queue = :name AND reason IN ('arrived', 'key') LIMIT :most))

-- name: count_waiting_tenant [postgres] How many jobs of a tenant wait, up to a number: one look into each queue.
WITH RECURSIVE queue AS (
    (SELECT queue AS name FROM duly.waiting ORDER BY queue LIMIT 1)
    UNION ALL SELECT (SELECT w.queue FROM duly.waiting w WHERE w.queue > q.name ORDER BY w.queue LIMIT 1) FROM queue q WHERE q.name IS NOT NULL
)
SELECT count(*) FROM (
    (SELECT 1 FROM queue q CROSS JOIN LATERAL (
        SELECT 1 FROM duly.waiting w WHERE w.queue = q.name AND w.suspect = 0 AND w.tenant = :name::text LIMIT :most::integer) s LIMIT :most::integer)
    UNION ALL (SELECT 1 FROM duly.parked WHERE tenant = :name::text AND reason IN ('arrived', 'key') LIMIT :most::integer)) w

-- name: count_waiting_tenant [sqlite] How many jobs of a tenant wait, up to a number: one look into each queue.
WITH RECURSIVE queue (name) AS (
    SELECT min(queue) FROM duly.waiting
    UNION ALL SELECT (SELECT min(w.queue) FROM duly.waiting w WHERE w.queue > q.name) FROM queue q WHERE q.name IS NOT NULL
)
SELECT (SELECT COALESCE(sum((SELECT count(*) FROM (SELECT 1 FROM duly.waiting w WHERE w.queue = q.name AND w.suspect = 0 AND w.tenant = :name LIMIT :most))), 0)
        FROM queue q WHERE q.name IS NOT NULL)
     + (SELECT count(*) FROM (SELECT 1 FROM duly.parked WHERE tenant = :name AND reason IN ('arrived', 'key') LIMIT :most))

-- name: lock_quota [postgres] Hold a tenant's quota per minute or day, if going over it is refused.
SELECT rate_n, rate_us, spent_until, used, :now FROM duly.gates
WHERE scope = :scope::text AND name = :name::text AND rate_n IS NOT NULL AND refuses FOR UPDATE

-- name: lock_quota [sqlite] A tenant's quota per minute or day, if going over it is refused.
SELECT rate_n, rate_us, spent_until, used, :now FROM duly.gates WHERE scope = :scope AND name = :name AND rate_n IS NOT NULL AND refuses

-- name: spend_quota What is enqueued now is taken off a quota.
UPDATE duly.gates SET spent_until = :now - :now % rate_us,
    used = CASE WHEN spent_until = :now - :now % rate_us THEN used + :n::integer ELSE :n::integer END
WHERE scope = :scope::text AND name = :name::text AND rate_n IS NOT NULL AND refuses

-- name: refund_rate What was taken off a rate or a quota for runs that did not start is given back.
UPDATE duly.gates SET
    spent_until = CASE WHEN burst IS NULL THEN spent_until ELSE spent_until - :n::bigint * rate_us / rate_n END,
    used = CASE WHEN burst IS NULL AND spent_until = :now - :now % rate_us AND used >= :n::integer THEN used - :n::integer ELSE used END
WHERE scope = :scope::text AND name = :name::text AND rate_n IS NOT NULL AND NOT refuses

-- name: refund_key The same for the rate of a key.
UPDATE duly.keys SET spent_until = spent_until - :n::bigint * rate_us / rate_n, opens_at = :now WHERE name = :key::text AND rate_n IS NOT NULL
