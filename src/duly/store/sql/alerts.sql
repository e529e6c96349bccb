-- name: alerts_due How long until somebody should look, and until somebody is to be told by a channel that is served here.
SELECT (SELECT next_at FROM duly.alert_turns WHERE id = 1) - :now,
       (SELECT min(CASE WHEN leased_until > next_try_at THEN leased_until ELSE next_try_at END) FROM duly.alert_notices WHERE done_at IS NULL
          AND (channel = 'log' OR (channel = 'webhook' AND :webhook::boolean) OR (channel = 'callback' AND :callback::boolean))) - :now

-- name: anything_to_see Whether there is anything that alerts could be about: mostly not, where nothing happens. Says what time it is, too.
-- By queue: in that index claims have marked what is gone, and it is not walked over again.
SELECT :now, EXISTS (SELECT 1 FROM duly.waiting WHERE queue >= '') OR EXISTS (SELECT 1 FROM duly.running) OR EXISTS (SELECT 1 FROM duly.parked)
    OR EXISTS (SELECT 1 FROM duly.scheduled WHERE run_at <= :now) OR EXISTS (SELECT 1 FROM duly.alerts WHERE ended_at IS NULL)
    OR EXISTS (SELECT 1 FROM duly.rollups WHERE period_us = 60000000 AND period_at >= :now - :window_us::bigint AND failed + crashed > 0)
    OR EXISTS (SELECT 1 FROM duly.ended WHERE state = 'failed' AND finished_at >= :now - :poison_us::bigint)
    OR EXISTS (SELECT 1 FROM duly.recurring WHERE NOT enabled AND disabled_at >= :now - :poison_us::bigint)

-- name: take_turn Take the turn to look, if it is free. Says its number.
INSERT INTO duly.alert_turns (id, turn, next_at, holder) VALUES (1, 1, :now + :interval_us::bigint, :holder::text)
ON CONFLICT (id) DO UPDATE SET turn = duly.alert_turns.turn + 1, next_at = excluded.next_at, holder = excluded.holder
WHERE duly.alert_turns.next_at <= :now OR :now_please::boolean
RETURNING turn

-- name: hold_turn Keep the turn until this transaction ends, if it is still ours.
UPDATE duly.alert_turns SET holder = holder WHERE id = 1 AND turn = :turn::bigint RETURNING :now

-- part: alert_columns An alert.
SELECT id, rule, subject, queue, task, value, threshold, message, details, started_at, seen_at, ok_since, ended_at, told, acked_at, acked_by

-- name: active_alerts The alerts that have not ended.
@alert_columns
FROM duly.alerts WHERE ended_at IS NULL ORDER BY started_at, id

-- name: ended_alerts The alerts that ended last.
@alert_columns
FROM duly.alerts WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT :n::integer

-- name: get_alert One alert.
@alert_columns
FROM duly.alerts WHERE id = :id::uuid

-- name: start_alert An alert starts, unless the same is active.
INSERT INTO duly.alerts (id, rule, subject, queue, task, value, threshold, message, details, started_at, seen_at, told)
VALUES (:id::uuid, :rule::text, :subject::text, :queue::text, :task::text, :value::float8, :threshold::float8, :message::text,
        :details::text, :now, :now, :told::boolean)
ON CONFLICT (rule, subject) WHERE ended_at IS NULL DO NOTHING RETURNING started_at

-- name: keep_alert An alert goes on, as it now stands.
UPDATE duly.alerts SET value = :value::float8, threshold = :threshold::float8, message = :message::text, details = :details::text, seen_at = :now,
    ok_since = NULL, told = :told::boolean
WHERE id = :id::uuid AND ended_at IS NULL

-- name: calm_alert What an alert is about is in order for now.
UPDATE duly.alerts SET ok_since = :now WHERE id = :id::uuid AND ended_at IS NULL AND ok_since IS NULL

-- name: end_alert An alert ends.
UPDATE duly.alerts SET ended_at = :now, ok_since = COALESCE(ok_since, :now) WHERE id = :id::uuid AND ended_at IS NULL RETURNING ended_at

-- name: count_active_alerts How many alerts are active, by rule.
SELECT rule, count(*) FROM duly.alerts WHERE ended_at IS NULL GROUP BY rule

-- name: add_notice Somebody shall be told, once.
INSERT INTO duly.alert_notices (id, alert_id, event, channel, body, made_at, next_try_at)
VALUES (:id::uuid, :alert_id::uuid, :event::text, :channel::text, :body::text, :now, :now)
ON CONFLICT (alert_id, channel, event) DO NOTHING

-- name: next_notice [postgres] The notice of a channel that is to be told first; the end of an alert not before its start. Others leave it alone meanwhile.
SELECT n.id, n.alert_id, n.event, n.body, n.tries, :now - n.made_at FROM duly.alert_notices n
WHERE n.done_at IS NULL AND n.channel = :channel::text AND n.next_try_at <= :now AND (n.leased_until IS NULL OR n.leased_until <= :now)
  AND (n.event = 'started' OR NOT EXISTS (SELECT 1 FROM duly.alert_notices s
       WHERE s.alert_id = n.alert_id AND s.channel = n.channel AND s.event = 'started' AND s.done_at IS NULL))
ORDER BY n.next_try_at, n.id LIMIT 1 FOR UPDATE OF n SKIP LOCKED

-- name: next_notice [sqlite] The notice of a channel that is to be told first; the end of an alert not before its start.
SELECT n.id, n.alert_id, n.event, n.body, n.tries, :now - n.made_at FROM duly.alert_notices n
WHERE n.done_at IS NULL AND n.channel = :channel AND n.next_try_at <= :now AND (n.leased_until IS NULL OR n.leased_until <= :now)
  AND (n.event = 'started' OR NOT EXISTS (SELECT 1 FROM duly.alert_notices s
       WHERE s.alert_id = n.alert_id AND s.channel = n.channel AND s.event = 'started' AND s.done_at IS NULL))
ORDER BY n.next_try_at, n.id LIMIT 1

-- name: lease_notice Take a notice for a while.
UPDATE duly.alert_notices SET tries = tries + 1, leased_until = :now + :lease_us::bigint WHERE id = :id::uuid

-- name: notice_done Somebody was told, or will not be.
UPDATE duly.alert_notices SET done_at = :now, leased_until = NULL, error = :error::text WHERE id = :id::uuid AND done_at IS NULL

-- name: notice_again A notice is to be tried again.
UPDATE duly.alert_notices SET next_try_at = :now + :delay_us::bigint, leased_until = NULL, error = :error::text WHERE id = :id::uuid AND done_at IS NULL

-- name: drop_notices Notices of channels that nobody served in time.
UPDATE duly.alert_notices SET done_at = :now, error = 'no process served this channel'
WHERE done_at IS NULL AND tries = 0 AND made_at < :now - :keep_us::bigint
  AND NOT EXISTS (SELECT 1 FROM duly.alert_notices s
                  WHERE s.alert_id = duly.alert_notices.alert_id AND s.channel = duly.alert_notices.channel AND s.tries > 0)

-- name: notices_of Who was told of an alert.
SELECT id, event, channel, made_at, tries, done_at, error FROM duly.alert_notices WHERE alert_id = :id::uuid ORDER BY made_at, event DESC, channel

-- name: prune_notices Forget who was told of alerts that ended long ago.
DELETE FROM duly.alert_notices WHERE alert_id IN (SELECT id FROM duly.alerts WHERE ended_at < :now - :keep_us::bigint)

-- name: prune_alerts Forget alerts that ended long ago.
DELETE FROM duly.alerts WHERE ended_at < :now - :keep_us::bigint

-- name: prune_silences Forget silences that are over.
DELETE FROM duly.alert_silences WHERE until_at < :now - :keep_us::bigint

-- name: silences What is silenced now.
SELECT id, rule, subject, made_at, until_at, made_by, reason FROM duly.alert_silences WHERE until_at > :now ORDER BY until_at, id

-- name: add_silence Tell nobody of some alerts for a while.
INSERT INTO duly.alert_silences (id, rule, subject, made_at, until_at, made_by, reason)
VALUES (:id::uuid, :rule::text, :subject::text, :now, :now + :for_us::bigint, :made_by::text, :reason::text) RETURNING until_at

-- name: end_silences End silences of a rule and a subject, or of all.
DELETE FROM duly.alert_silences WHERE until_at > :now AND (:rule::text IS NULL OR rule = :rule::text) AND (:subject::text IS NULL OR subject = :subject::text)
RETURNING id

-- name: ack_alert Somebody has seen an alert and looks after it.
UPDATE duly.alerts SET acked_at = :now, acked_by = :by::text WHERE id = :id::uuid AND ended_at IS NULL AND acked_at IS NULL RETURNING rule, subject

-- name: rest_after Nobody looks for a while: the last look took long.
UPDATE duly.alert_turns SET next_at = :now + :rest_us::bigint WHERE id = 1 AND turn = :turn::bigint
