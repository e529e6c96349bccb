-- Whoever lets jobs of a key into their lanes holds the key (one of 1,024 locks, in one order for all) before any place. Whoever takes
-- such a job out of its lane otherwise only leaves word beside that job (`look`): it may be a caller whose transaction stays open for
-- long, and nobody shall wait for it.

-- name: lock_keys [postgres] Hold some keys until this transaction ends.
SELECT count(pg_advisory_xact_lock(1685416057, b.bucket))
FROM (SELECT DISTINCT hashtext(key) & 1023 AS bucket FROM unnest((SELECT :keys::text[])) AS k(key) ORDER BY bucket) b

-- name: hold_key_rows [postgres] Hold the rows of some keys in the order in which claims hold them, before they are changed one by one.
SELECT name FROM duly.keys WHERE name = ANY (:keys::text[]) ORDER BY name FOR UPDATE

-- part: is_there [postgres] A job that was let in, unless it has another key since: of that word was left.
a.job_id AND NOT (a.look AND EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = a.job_id AND j.limit_key IS DISTINCT FROM a.key))

-- name: admit [postgres] Have the first jobs of these keys stand in their lanes, as many as each has room for; says into which lanes some came.
-- Of those that have not started, the ones that are not among the first go back; so do all where a key is closed.
WITH k AS MATERIALIZED (
    SELECT n.key, s.slots, s.rate_n, s.rate_us, s.burst, GREATEST(1, s.burst - GREATEST(0, ceil(s.rate_n * 30000.0 / s.rate_us - 0.1))) AS at_once,
           GREATEST(COALESCE(o.spent_until, 0), :now) AS spent_until,
           o.breaker_state IS NOT NULL AS probing,
           COALESCE((o.paused_at IS NOT NULL AND (o.paused_until IS NULL OR o.paused_until > :now)) OR o.blocked_until > :now, false) AS shut
    FROM unnest((SELECT :keys::text[])) AS n(key) LEFT JOIN duly.keys o ON o.name = n.key
    LEFT JOIN duly.gates g ON g.scope = 'keys' AND g.name = split_part(split_part(n.key, '/', 1), '@', 1)
    CROSS JOIN LATERAL (SELECT COALESCE(o.own_slots, g.slots) AS slots,
                               CASE WHEN o.own_rate THEN o.rate_n ELSE g.rate_n END AS rate_n,
                               CASE WHEN o.own_rate THEN o.rate_us ELSE g.rate_us END AS rate_us,
                               CASE WHEN o.own_rate THEN o.burst ELSE g.burst END AS burst) s
), room AS MATERIALIZED (
    SELECT k.*, s.tokens, l.unstarted, l.worst, l.stale, l.looks,
           CASE WHEN k.shut THEN 0 ELSE GREATEST(0, LEAST(:most::integer,
               k.slots - l.runs, CASE WHEN k.probing THEN 1 - l.runs END, s.tokens)) END AS may
    FROM k CROSS JOIN LATERAL (SELECT floor(k.at_once - (k.spent_until - :now)::numeric * k.rate_n / k.rate_us)::integer AS tokens) s
    CROSS JOIN LATERAL (
        SELECT count(w.id) AS unstarted, count(r.id) AS runs, max(w.rank) AS worst,
               array_agg(a.ctid) FILTER (WHERE w.id IS NULL AND r.id IS NULL) AS stale,
               array_agg(a.ctid) FILTER (WHERE a.look AND COALESCE(w.id, r.id) IS NOT NULL) AS looks
        FROM duly.admitted a LEFT JOIN duly.waiting w ON w.id =
@is_there
        LEFT JOIN duly.running r ON r.id =
@is_there
        WHERE a.key = k.key) l
), spare AS MATERIALIZED (
    SELECT room.key, b.id, b.at FROM room CROSS JOIN LATERAL (
        SELECT c.id, c.at, c.waits, row_number() OVER (ORDER BY c.rank, c.id) AS place FROM (
            SELECT w.id, a.ctid AS at, w.rank, true AS waits FROM duly.admitted a JOIN duly.waiting w ON w.id =
@is_there
            WHERE a.key = room.key
            UNION ALL (SELECT p.id, p.ctid, p.rank, false FROM duly.parked p WHERE p.mark = room.key AND p.rank IS NOT NULL
                       ORDER BY p.mark, p.rank, p.id LIMIT room.may)) c) b
    WHERE room.unstarted > 0 AND b.waits AND b.place > room.may
      AND (room.unstarted > room.may OR room.worst > (SELECT p.rank FROM duly.parked p WHERE p.mark = room.key AND p.rank IS NOT NULL
                                                      ORDER BY p.mark, p.rank, p.id LIMIT 1))
), out AS MATERIALIZED (
    SELECT s.key, s.at, w.id FROM spare s JOIN duly.waiting w ON w.id = s.id FOR UPDATE OF w SKIP LOCKED
), back AS (
    DELETE FROM duly.waiting WHERE id = ANY (ARRAY(SELECT id FROM out)) RETURNING *
), aside AS (
    INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, token, attempt, crashes, hold, parked_at, reason, mark, rank)
    SELECT b.id, b.queue, b.tenant, b.task, b.run_at, b.priority, b.token, b.attempt, b.crashes, b.hold, :now, 'key', out.key, b.rank
    FROM back b JOIN out ON out.id = b.id
), free AS MATERIALIZED (
    SELECT room.*, room.unstarted - COALESCE(o.n, 0) AS kept FROM room
    LEFT JOIN (SELECT key, count(*) AS n FROM out GROUP BY key) o ON o.key = room.key
), pick AS MATERIALIZED (
    SELECT p.id FROM free CROSS JOIN LATERAL (
        SELECT id FROM duly.parked WHERE mark = free.key AND rank IS NOT NULL ORDER BY mark, rank, id
        LIMIT free.may - free.kept FOR UPDATE SKIP LOCKED) p
    WHERE free.may > free.kept
), taken AS (
    DELETE FROM duly.parked WHERE id = ANY (ARRAY(SELECT id FROM pick)) RETURNING *
), noted AS (
    INSERT INTO duly.admitted (key, job_id) SELECT mark, id FROM taken ON CONFLICT DO NOTHING
), stale AS MATERIALIZED (
    SELECT ctid AS at FROM duly.admitted
    WHERE ctid = ANY (ARRAY(SELECT unnest(stale) FROM room)) AND job_id NOT IN (SELECT id FROM pick) FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM duly.admitted WHERE ctid = ANY (ARRAY(SELECT at FROM stale UNION ALL SELECT at FROM out))
), heard AS MATERIALIZED (
    SELECT ctid AS at FROM duly.admitted
    WHERE ctid = ANY (ARRAY(SELECT unnest(looks) FROM room)) AND job_id NOT IN (SELECT id FROM out) FOR UPDATE SKIP LOCKED
), stays AS (
    UPDATE duly.admitted SET look = false WHERE ctid = ANY (ARRAY(SELECT at FROM heard))
), metered AS (
    INSERT INTO duly.keys AS y (name, rate_n, rate_us, burst, opens_at)
    SELECT free.key, free.rate_n, free.rate_us, free.burst,
           CASE WHEN free.tokens <= free.kept + t.n
                     AND (free.kept < free.unstarted OR EXISTS (SELECT 1 FROM duly.parked p WHERE p.mark = free.key AND p.rank IS NOT NULL AND p.id NOT IN (SELECT id FROM pick)))
                THEN GREATEST(:now + 1000, free.spent_until - (free.at_once::bigint - free.kept - t.n - 1) * free.rate_us / free.rate_n) END
    FROM free CROSS JOIN LATERAL (SELECT count(*) AS n FROM taken WHERE taken.mark = free.key) t
    WHERE free.rate_n IS NOT NULL AND NOT free.shut ORDER BY free.key
    ON CONFLICT (name) DO UPDATE SET
        rate_n = excluded.rate_n, rate_us = excluded.rate_us, burst = excluded.burst, opens_at = excluded.opens_at
), lane AS (
    INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold)
    SELECT queue, CASE WHEN crashes > 1 THEN 1 ELSE 0 END, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold
    FROM taken RETURNING queue, tenant, task, rank
)
SELECT queue, tenant, task, min(rank), count(*) FROM lane GROUP BY queue, tenant, task

-- name: arrived [postgres] Jobs with keys that have just come, first come first.
SELECT id, mark FROM duly.parked WHERE reason = 'arrived' ORDER BY task, parked_at LIMIT :n::integer

-- name: arrived [sqlite] Jobs with keys that have just come, first come first.
SELECT id, mark FROM duly.parked WHERE reason = 'arrived' ORDER BY task, parked_at LIMIT :n

-- name: any_parked_by_key Whether any job waits for its key.
SELECT 1 WHERE EXISTS (SELECT 1 FROM duly.parked WHERE rank IS NOT NULL)

-- part: of_which_word_was_left [postgres] Keys that a worker should look at.
FROM duly.admitted WHERE look

-- part: of_which_word_was_left [sqlite] Keys that a worker should look at; left to itself it walks through all of them.
FROM duly.admitted INDEXED BY duly.admitted_to_look_at WHERE look

-- name: any_arrived Whether a job with a key has just come, or a key opens.
SELECT 1 WHERE EXISTS (SELECT 1 FROM duly.parked WHERE reason = 'arrived')
    OR EXISTS (SELECT 1 FROM duly.keys WHERE opens_at <= :now) OR EXISTS (SELECT 1
@of_which_word_was_left
)

-- name: settle_in [postgres] Those for which there was no room wait for their keys.
UPDATE duly.parked SET reason = 'key'
WHERE id IN (SELECT id FROM duly.parked WHERE id = ANY (:ids::uuid[]) AND reason = 'arrived' ORDER BY id FOR UPDATE SKIP LOCKED)

-- name: settle_in [sqlite] Those for which there was no room wait for their keys.
UPDATE duly.parked SET reason = 'key' WHERE id IN (SELECT value FROM json_each(:ids)) AND reason = 'arrived'

-- name: opening_keys Keys whose time has come: a rate lets one start, a pause is over.
SELECT name FROM duly.keys WHERE opens_at <= :now ORDER BY opens_at LIMIT :n::integer

-- name: keys_to_look_at Keys of which somebody left word.
SELECT key
@of_which_word_was_left
LIMIT :n::integer

-- part: open_keys Pauses that are over end, an open breaker tries one job.
UPDATE duly.keys SET
    paused_at = CASE WHEN paused_until <= :now THEN NULL ELSE paused_at END,
    paused_by = CASE WHEN paused_until <= :now THEN NULL ELSE paused_by END,
    paused_reason = CASE WHEN paused_until <= :now THEN NULL ELSE paused_reason END,
    paused_until = CASE WHEN paused_until <= :now THEN NULL ELSE paused_until END,
    breaker_state = CASE WHEN breaker_state = 'open' AND blocked_until <= :now THEN 'probing' ELSE breaker_state END,
    blocked_reason = CASE WHEN blocked_until <= :now THEN NULL ELSE blocked_reason END,
    blocked_until = CASE WHEN blocked_until <= :now THEN NULL ELSE blocked_until END,
    opens_at = CASE WHEN paused_until > :now AND (blocked_until IS NULL OR blocked_until <= :now OR blocked_until > paused_until) THEN paused_until
                    WHEN blocked_until > :now THEN blocked_until END

-- name: open_keys [postgres] Some keys are looked at; held in the order in which claims hold them.
@open_keys
WHERE name IN (SELECT name FROM duly.keys WHERE name = ANY (:keys::text[]) ORDER BY name FOR UPDATE)

-- name: open_keys [sqlite] Some keys are looked at.
@open_keys
WHERE name IN (SELECT value FROM json_each(:keys))

-- name: forget_keys [postgres] Keys that say nothing any more; of a rate the claims of jobs that are let in must know.
DELETE FROM duly.keys
WHERE name = ANY (:keys::text[]) AND own_slots IS NULL AND NOT own_rate AND opens_at IS NULL AND breaker_state IS NULL AND tries = 0
  AND blocked_until IS NULL AND paused_at IS NULL AND spent_until <= :now
  AND NOT EXISTS (SELECT 1 FROM duly.admitted a WHERE a.key = name)

-- name: forget_keys [sqlite] Keys that say nothing any more; of a rate the claims of jobs that are let in must know.
DELETE FROM duly.keys
WHERE name IN (SELECT value FROM json_each(:keys)) AND own_slots IS NULL AND NOT own_rate AND opens_at IS NULL AND breaker_state IS NULL AND tries = 0
  AND blocked_until IS NULL AND paused_at IS NULL AND spent_until <= :now
  AND NOT EXISTS (SELECT 1 FROM duly.admitted a WHERE a.key = name)

-- name: old_keys Keys that say nothing any more.
SELECT name FROM duly.keys WHERE own_slots IS NULL AND NOT own_rate AND opens_at IS NULL AND breaker_state IS NULL
  AND blocked_until IS NULL AND paused_at IS NULL AND spent_until <= :now AND (tries = 0 OR counting_since < :now - :old_us::bigint) LIMIT :n::integer

-- name: forget_counts [postgres] Keys whose counts are old.
UPDATE duly.keys SET tries = 0, failures = 0, counting_since = NULL WHERE name = ANY (:keys::text[]) AND counting_since < :now - :old_us::bigint

-- name: forget_counts [sqlite] Keys whose counts are old.
UPDATE duly.keys SET tries = 0, failures = 0, counting_since = NULL WHERE name IN (SELECT value FROM json_each(:keys)) AND counting_since < :now - :old_us

-- name: look_at_key_of A job with a key was taken out of its lane, or stands elsewhere in it: have a worker see who may come in.
UPDATE duly.admitted SET look = true WHERE job_id = :id::uuid AND key = (SELECT limit_key FROM duly.jobs WHERE id = :id::uuid)

-- name: limit_keys_of [postgres] The keys of some jobs.
SELECT DISTINCT limit_key FROM duly.jobs WHERE id = ANY (:ids::uuid[]) AND limit_key IS NOT NULL

-- name: limit_keys_of [sqlite] The keys of some jobs.
SELECT DISTINCT limit_key FROM duly.jobs WHERE id IN (SELECT value FROM json_each(:ids)) AND limit_key IS NOT NULL

-- name: spare [sqlite] Of the jobs of a key in lanes those that are not among the first, of them and the parked ones.
SELECT json_group_array(id) FROM (
    SELECT id, waits FROM (
        SELECT w.id, w.rank, 1 AS waits FROM duly.admitted a CROSS JOIN duly.waiting w ON w.id = a.job_id WHERE a.key = :key
        UNION ALL SELECT * FROM (SELECT p.id, p.rank, 0 FROM duly.parked p WHERE p.mark = :key AND p.rank IS NOT NULL ORDER BY p.mark, p.rank, p.id LIMIT :may))
    ORDER BY rank, id LIMIT -1 OFFSET :may) WHERE waits

-- name: evict_park [sqlite] They go back to where they wait for their key.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, token, attempt, crashes, hold, parked_at, reason, mark, rank)
SELECT w.id, w.queue, w.tenant, w.task, w.run_at, w.priority, w.token, w.attempt, w.crashes, w.hold, :now, 'key', :key, w.rank
FROM json_each(:ids) e CROSS JOIN duly.waiting w ON w.id = e.value

-- name: evict_leave [sqlite] And leave their lane.
DELETE FROM duly.waiting WHERE id IN (SELECT value FROM json_each(:ids))

-- name: evict_note [sqlite] They are no longer let in.
DELETE FROM duly.admitted WHERE key = :key AND job_id IN (SELECT value FROM json_each(:ids))

-- name: key_now [sqlite] What holds for a key, and how many of its jobs wait in their lanes and run.
SELECT CASE WHEN o.own_slots IS NOT NULL THEN o.own_slots ELSE g.slots END,
       CASE WHEN o.own_rate THEN o.rate_n ELSE g.rate_n END, CASE WHEN o.own_rate THEN o.rate_us ELSE g.rate_us END,
       CASE WHEN o.own_rate THEN o.burst ELSE g.burst END, COALESCE(o.spent_until, 0),
       o.breaker_state IS NOT NULL,
       COALESCE((o.paused_at IS NOT NULL AND (o.paused_until IS NULL OR o.paused_until > :now)) OR o.blocked_until > :now, 0), :now,
       (SELECT count(*) FROM duly.admitted a CROSS JOIN duly.waiting w ON w.id = a.job_id WHERE a.key = :key),
       (SELECT count(*) FROM duly.admitted a CROSS JOIN duly.running r ON r.id = a.job_id WHERE a.key = :key),
       (SELECT max(w.rank) FROM duly.admitted a CROSS JOIN duly.waiting w ON w.id = a.job_id WHERE a.key = :key),
       (SELECT p.rank FROM duly.parked p WHERE p.mark = :key AND p.rank IS NOT NULL ORDER BY p.mark, p.rank, p.id LIMIT 1)
FROM (SELECT 1) LEFT JOIN duly.keys o ON o.name = :key LEFT JOIN duly.gates g ON g.scope = 'keys' AND g.name = :group

-- name: drop_admitted [sqlite] Those that stand in no lane and do not run are no longer let in; nor those that have another key since, of which word was left.
DELETE FROM duly.admitted WHERE key = :key
  AND ((look AND EXISTS (SELECT 1 FROM duly.jobs j WHERE j.id = job_id AND j.limit_key IS NOT key))
    OR (NOT EXISTS (SELECT 1 FROM duly.waiting w WHERE w.id = job_id) AND NOT EXISTS (SELECT 1 FROM duly.running r WHERE r.id = job_id)))

-- name: looked_at_key [sqlite] The word that was left is heard.
UPDATE duly.admitted SET look = 0 WHERE key = :key AND look

-- name: parked_by_key [sqlite] The first jobs that wait for a key.
SELECT json_group_array(id) FROM (SELECT id FROM duly.parked WHERE mark = :key AND rank IS NOT NULL ORDER BY mark, rank, id LIMIT :n)

-- name: admit_lanes [sqlite] Which lanes they go to.
SELECT queue, tenant, task, min(rank), count(*) FROM json_each(:ids) e CROSS JOIN duly.parked p ON p.id = e.value GROUP BY queue, tenant, task

-- name: admit_waiting [sqlite] Let them in.
INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority, token, attempt, crashes, hold)
SELECT p.queue, p.crashes > 1, p.tenant, p.task, p.rank, p.id, p.run_at, p.priority, p.token, p.attempt, p.crashes, p.hold
FROM json_each(:ids) e CROSS JOIN duly.parked p ON p.id = e.value

-- name: admit_note [sqlite] Note that they are let in.
INSERT INTO duly.admitted (key, job_id) SELECT :key, value FROM json_each(:ids) WHERE true ON CONFLICT DO NOTHING

-- name: admit_leave [sqlite] Out of parking.
DELETE FROM duly.parked WHERE id IN (SELECT value FROM json_each(:ids))

-- name: meter_key [sqlite] Keep a key's rate beside what is spent of it, and when to look again.
INSERT INTO duly.keys (name, rate_n, rate_us, burst, opens_at) VALUES (:key, :rate_n, :rate_us, :burst, :opens_at)
ON CONFLICT (name) DO UPDATE SET rate_n = excluded.rate_n, rate_us = excluded.rate_us, burst = excluded.burst, opens_at = excluded.opens_at

-- name: pause_key Close a key. Paused again, it keeps since when.
INSERT INTO duly.keys (name, paused_at, paused_until, paused_by, paused_reason, opens_at)
VALUES (:name::text, :now, COALESCE(:until::bigint, :now + :for_us::bigint), :by::text, :reason::text, COALESCE(:until::bigint, :now + :for_us::bigint))
ON CONFLICT (name) DO UPDATE SET
    paused_at = COALESCE(duly.keys.paused_at, excluded.paused_at), paused_until = excluded.paused_until,
    paused_by = excluded.paused_by, paused_reason = excluded.paused_reason, opens_at = COALESCE(excluded.opens_at, duly.keys.blocked_until)

-- name: resume_key Open a key: end its pause, or if it has none its block, as if its time were over. Says whether it was closed.
UPDATE duly.keys SET paused_at = NULL, paused_until = NULL, paused_by = NULL, paused_reason = NULL, opens_at = :now,
    blocked_until = CASE WHEN paused_at IS NULL THEN :now ELSE blocked_until END
WHERE name = :name::text AND (paused_at IS NOT NULL OR blocked_until > :now) RETURNING name

-- name: paused_keys Keys that are paused, since when, until when, by whom and why.
SELECT 'key', name, paused_at, paused_until, paused_by, paused_reason FROM duly.keys
WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now) ORDER BY name

-- name: block_key Keep a key closed for a while because what is behind it asked for it. The longest wish counts.
INSERT INTO duly.keys (name, blocked_until, blocked_reason, opens_at) VALUES (:key::text, :now + :for_us::bigint, :reason::text, :now + :for_us::bigint)
ON CONFLICT (name) DO UPDATE SET
    blocked_reason = CASE WHEN COALESCE(duly.keys.blocked_until, 0) > excluded.blocked_until THEN duly.keys.blocked_reason ELSE excluded.blocked_reason END,
    blocked_until = CASE WHEN COALESCE(duly.keys.blocked_until, 0) > excluded.blocked_until THEN duly.keys.blocked_until ELSE excluded.blocked_until END,
    opens_at = CASE WHEN COALESCE(duly.keys.blocked_until, 0) > excluded.blocked_until THEN duly.keys.blocked_until ELSE excluded.blocked_until END

-- name: breaker_of The breaker of a key, how it stands, and the time.
SELECT g.breaker, o.breaker_state, COALESCE(o.opened, 0), o.counting_since, COALESCE(o.tries, 0), COALESCE(o.failures, 0), :now
FROM duly.gates g LEFT JOIN duly.keys o ON o.name = :key::text WHERE g.scope = 'keys' AND g.name = :group::text AND g.breaker IS NOT NULL

-- name: set_breaker How the breaker of a key stands.
INSERT INTO duly.keys (name, breaker_state, opened, counting_since, tries, failures, blocked_until, blocked_reason, opens_at)
VALUES (:key::text, :state::text, :opened::smallint, :since::bigint, :tries::integer, :failures::integer, :until::bigint, :reason::text, :until::bigint)
ON CONFLICT (name) DO UPDATE SET
    breaker_state = excluded.breaker_state, opened = excluded.opened, counting_since = excluded.counting_since,
    tries = excluded.tries, failures = excluded.failures,
    blocked_until = CASE WHEN duly.keys.blocked_until > excluded.blocked_until THEN duly.keys.blocked_until ELSE COALESCE(excluded.blocked_until, duly.keys.blocked_until) END,
    blocked_reason = CASE WHEN duly.keys.blocked_until > excluded.blocked_until THEN duly.keys.blocked_reason ELSE COALESCE(excluded.blocked_reason, duly.keys.blocked_reason) END,
    opens_at = CASE WHEN duly.keys.blocked_until > excluded.blocked_until THEN duly.keys.blocked_until ELSE COALESCE(excluded.opens_at, duly.keys.opens_at) END

-- name: key_row What one key says beside its group, and where it stands.
SELECT name, own_slots, own_rate, rate_n, rate_us, burst, spent_until, opens_at, breaker_state, opened, tries, failures, blocked_until,
       blocked_reason, paused_at, paused_until, paused_by, paused_reason
FROM duly.keys WHERE name = :key::text

-- name: special_keys Keys that have a word of their own, are blocked, or whose breaker is not closed; in the columns of `limits`.
SELECT 'key', name, own_slots, CASE WHEN own_rate THEN rate_n END, CASE WHEN own_rate THEN rate_us END, CASE WHEN own_rate THEN burst END,
       NULL, false, NULL, false, own_slots IS NOT NULL OR own_rate, true, spent_until, 0, CASE WHEN blocked_until > :now THEN blocked_until END,
       CASE WHEN breaker_state = 'probing' THEN 'circuit breaker: one job is tried' WHEN blocked_until > :now THEN blocked_reason END,
       paused_at, paused_until, NULL
FROM duly.keys WHERE own_slots IS NOT NULL OR own_rate OR breaker_state IS NOT NULL OR blocked_until > :now ORDER BY name LIMIT :n::integer

-- name: set_key_limit What one key says beside its group.
INSERT INTO duly.keys (name, own_slots, own_rate, rate_n, rate_us, burst, opens_at)
VALUES (:key::text, :slots::integer, :own_rate::boolean, :rate_n::integer, :rate_us::bigint, :burst::integer, :now)
ON CONFLICT (name) DO UPDATE SET own_slots = excluded.own_slots, own_rate = excluded.own_rate, rate_n = excluded.rate_n,
    rate_us = excluded.rate_us, burst = excluded.burst, opens_at = excluded.opens_at

-- name: busy_keys The next keys of a group that have jobs in lanes or running.
SELECT DISTINCT key FROM duly.admitted WHERE key > :after::text AND key < :before::text ORDER BY key LIMIT :n::integer

-- name: waiting_keys The next keys of a group that have jobs waiting for them.
SELECT DISTINCT mark FROM duly.parked WHERE rank IS NOT NULL AND mark > :after::text AND mark < :before::text ORDER BY mark LIMIT :n::integer

-- name: insert_arrived [sqlite] One new job with a key, whose time has come, stands aside until there is room.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, hold, parked_at, reason, mark, rank)
SELECT :id, :queue, :tenant, :task, COALESCE(:run_at, :now + :delay_us), :priority, :hold, :now, 'arrived', :limit_key,
       COALESCE(:run_at, :now + :delay_us) - :priority * (COALESCE((SELECT horizon_us FROM duly.queues WHERE name = :queue), :horizon) / 100)
WHERE COALESCE(:run_at, :now + :delay_us) <= :now

-- name: insert_arrived_many [postgres] Many new jobs with keys stand aside until there is room.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, hold, parked_at, reason, mark, rank)
SELECT b.id, :queue::text, :tenant::text, :task::text, :run_at::bigint, :priority::smallint, :hold::smallint, :created_at::bigint, 'arrived', b.key, :rank::bigint
FROM unnest((SELECT :ids::uuid[]), :limit_keys::text[]) AS b(id, key)

-- name: insert_arrived_many [sqlite] Many new jobs with keys stand aside until there is room.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, hold, parked_at, reason, mark, rank)
SELECT json_extract(value, '$[0]'), :queue, :tenant, :task, :run_at, :priority, :hold, :created_at, 'arrived', json_extract(value, '$[3]'), :rank
FROM json_each(:batch)

-- name: requeue_keyed A job with a key stands aside, due now or as it was, until there is room.
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, token, attempt, crashes, hold, parked_at, reason, mark, rank)
SELECT j.id, j.queue, j.tenant, j.task, COALESCE(:run_at::bigint, :now), j.priority, :token::bigint, :attempt::integer, :crashes::smallint, :hold::smallint, :now, 'arrived', j.limit_key,
       COALESCE(:run_at::bigint, :now) - j.priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = j.queue), :horizon::bigint) / 100)
FROM duly.jobs j WHERE j.id = :id::uuid

-- name: rerank_parked A job set aside gets a new priority. If it waits for its key it moves to the place that this gives it, which may be before one in a lane.
UPDATE duly.parked SET priority = :priority::smallint,
    reason = CASE WHEN rank IS NULL THEN reason ELSE 'arrived' END,
    rank = CASE WHEN rank IS NULL THEN NULL ELSE run_at - :priority::bigint * (COALESCE((SELECT horizon_us FROM duly.queues q WHERE q.name = queue), :horizon::bigint) / 100) END
WHERE id = :id::uuid RETURNING id
