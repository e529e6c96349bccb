-- duly 0005: limits, rates and quotas. A gate says how many may run at once (slots), how many may start in a time (rate_n in
-- rate_us: a bucket that holds `burst`, or with no burst a number for each minute or day), and how many may wait.
-- Scopes: queue, task, tenant; minute and day are a tenant's quotas; keys says what holds for each key of a group.

ALTER TABLE duly.gates DROP CONSTRAINT gates_scope_check;
ALTER TABLE duly.gates
    ADD CONSTRAINT gates_scope_check CHECK (scope IN ('queue', 'task', 'tenant', 'minute', 'day', 'keys')),
    ADD COLUMN slots          integer CHECK (slots >= 0),
    ADD COLUMN rate_n         integer CHECK (rate_n > 0),
    ADD COLUMN rate_us        bigint CHECK (rate_us > 0),
    ADD COLUMN burst          integer CHECK (burst > 0),
    ADD COLUMN most_waiting   integer CHECK (most_waiting >= 0),
    ADD COLUMN refuses        boolean NOT NULL DEFAULT false,
    ADD COLUMN breaker        text,
    ADD COLUMN meters_keys    boolean NOT NULL DEFAULT false,
    ADD COLUMN by_hand        boolean NOT NULL DEFAULT false,
    ADD COLUMN declared       text,
    ADD COLUMN limited_at     bigint,
    ADD COLUMN stamped        boolean NOT NULL DEFAULT false,
    ADD COLUMN counted_from   bigint NOT NULL DEFAULT 0,
    ADD COLUMN spent_until    bigint NOT NULL DEFAULT 0,
    ADD COLUMN used           integer NOT NULL DEFAULT 0,
    ADD COLUMN blocked_until  bigint,
    ADD COLUMN blocked_reason text;
INSERT INTO duly.gates (scope, name, slots, stamped) SELECT scope, name, slots, true FROM duly.limits
ON CONFLICT (scope, name) DO UPDATE SET slots = excluded.slots, stamped = true;
DROP TABLE duly.limits;
CREATE INDEX gates_blocked ON duly.gates (blocked_until) WHERE blocked_until IS NOT NULL;

-- Which limits a run is counted under: 1 its task's, 2 its queue's, 4 its tenant's.
DROP INDEX duly.running_limited;
ALTER TABLE duly.running ALTER COLUMN limited DROP DEFAULT;
ALTER TABLE duly.running ALTER COLUMN limited TYPE smallint USING CASE WHEN limited THEN 1 ELSE 0 END;
ALTER TABLE duly.running ALTER COLUMN limited SET DEFAULT 0;
CREATE INDEX running_by_task ON duly.running (task, leased_until) WHERE limited & 1 <> 0;
CREATE INDEX running_by_queue ON duly.running (queue, leased_until) WHERE limited & 2 <> 0;
CREATE INDEX running_by_tenant ON duly.running (tenant, leased_until) WHERE limited & 4 <> 0;

-- Keys: jobs with one key share the slots and the rate of that key. A job with a key is let into its lane only while there
-- is room; before, it is parked ('arrived' until somebody has looked, then 'key'), by rank. What `admitted` names counts while
-- it stands in waiting or running; with `look` somebody left word that a worker should look at the key.
ALTER TABLE duly.jobs ADD COLUMN limit_key text;
CREATE INDEX jobs_by_limit_key ON duly.jobs (id) WHERE limit_key IS NOT NULL;
ALTER TABLE duly.parked ALTER COLUMN mark TYPE text COLLATE "C";
ALTER TABLE duly.parked ADD COLUMN rank bigint;
CREATE INDEX parked_by_key ON duly.parked (mark, rank, id) WHERE rank IS NOT NULL;
CREATE TABLE duly.admitted (
    key    text COLLATE "C" NOT NULL,
    job_id uuid NOT NULL,
    look   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (key, job_id)
);
CREATE INDEX admitted_to_look_at ON duly.admitted (key) WHERE look;
CREATE TABLE duly.keys (
    name           text COLLATE "C" PRIMARY KEY,
    own_slots      integer CHECK (own_slots >= 0),
    own_rate       boolean NOT NULL DEFAULT false,
    rate_n         integer CHECK (rate_n > 0),
    rate_us        bigint CHECK (rate_us > 0),
    burst          integer CHECK (burst > 0),
    spent_until    bigint NOT NULL DEFAULT 0,
    opens_at       bigint,
    breaker_state  text CHECK (breaker_state IN ('open', 'probing')),
    opened         smallint NOT NULL DEFAULT 0,
    counting_since bigint,
    tries          integer NOT NULL DEFAULT 0,
    failures       integer NOT NULL DEFAULT 0,
    blocked_until  bigint,
    blocked_reason text,
    paused_at      bigint,
    paused_until   bigint,
    paused_by      text,
    paused_reason  text
);
CREATE INDEX keys_by_opening ON duly.keys (opens_at) WHERE opens_at IS NOT NULL;

-- Hold some gates, in one order for all, and say how many jobs may start through all of them now. Each statement in here sees
-- what was committed before it: the counts come after the locks. The locks are advisory: a claim that finds no room writes
-- nothing, and one that does leaves hardly a trace on the gate's row, which all read. The runs under a limit are found by when
-- their leases end. That of one that has ended may lie an hour ahead, and its place in the index stays until vacuum comes: so a
-- count begins at the first live one, which `counted_from` tells, at most half a second behind. It holds because leases under
-- limits only grow, and are made nowhere but here. (Not where there is a rate too: one statement changes a row only once.)
-- Bitmap scans would never mark what is dead as such. What the caller knows to have ended is taken off after it was counted:
-- should it be settled between, that is one too many, never too few.
CREATE FUNCTION duly.gate_room(
    held_scopes text[], held_names text[], ended_ids uuid[], ended_tokens bigint[], most integer, now_us bigint, lease_now bigint, lease_us bigint,
    OUT n integer, OUT at_us bigint
) LANGUAGE plpgsql SET enable_bitmapscan = off SET enable_seqscan = off AS $$
DECLARE
    gate record;
    live integer;
    first bigint;
    since bigint;
BEGIN
    n := most;
    PERFORM pg_advisory_xact_lock(h.lock) FROM (
        SELECT hashtextextended(scope || ' ' || name, 'duly.gates'::regclass::oid::bigint) AS lock FROM unnest(held_scopes, held_names) AS g(scope, name)
        ORDER BY 1) h;
    at_us := now_us + (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint;
    FOR gate IN
        SELECT g.* FROM unnest(held_scopes, held_names) AS h(scope, name) JOIN duly.gates g ON g.scope = h.scope AND g.name = h.name
    LOOP
        IF gate.slots IS NOT NULL THEN
            since := CASE WHEN gate.rate_n IS NULL THEN GREATEST(lease_now + 1, gate.counted_from) ELSE lease_now + 1 END;
            CASE
                WHEN gate.scope = 'task' AND gate.stamped THEN
                    SELECT count(*), min(leased_until) INTO live, first FROM duly.running WHERE task = gate.name AND limited & 1 <> 0 AND leased_until >= since;
                WHEN gate.scope = 'queue' AND gate.stamped THEN
                    SELECT count(*), min(leased_until) INTO live, first FROM duly.running WHERE queue = gate.name AND limited & 2 <> 0 AND leased_until >= since;
                WHEN gate.scope = 'tenant' AND gate.stamped THEN
                    SELECT count(*), min(leased_until) INTO live, first FROM duly.running WHERE tenant = gate.name AND limited & 4 <> 0 AND leased_until >= since;
                ELSE
                    SELECT count(*) INTO live FROM duly.running WHERE leased_until > lease_now
                        AND CASE gate.scope WHEN 'task' THEN task WHEN 'queue' THEN queue ELSE tenant END = gate.name;
            END CASE;
            IF cardinality(ended_ids) > 0 THEN
                live := live - (
                    SELECT count(*) FROM unnest(ended_ids, ended_tokens) AS e(id, token) JOIN duly.running r ON r.id = ANY (ARRAY[e.id]) AND r.token = e.token
                    WHERE r.leased_until >= since AND CASE gate.scope WHEN 'task' THEN r.task WHEN 'queue' THEN r.queue ELSE r.tenant END = gate.name
                      AND (NOT gate.stamped OR r.limited & CASE gate.scope WHEN 'task' THEN 1 WHEN 'queue' THEN 2 ELSE 4 END <> 0));
            END IF;
            n := LEAST(n, gate.slots - live);
            first := LEAST(first, lease_now + lease_us);
            IF gate.stamped AND gate.rate_n IS NULL AND n > 0 AND (first < gate.counted_from OR first > gate.counted_from + 500000) THEN
                UPDATE duly.gates SET counted_from = first WHERE scope = gate.scope AND name = gate.name;
            END IF;
        END IF;
        IF gate.rate_n IS NOT NULL AND NOT gate.refuses THEN
            n := LEAST(n, CASE
                WHEN gate.burst IS NULL THEN gate.rate_n - CASE WHEN gate.spent_until = at_us - at_us % gate.rate_us THEN gate.used ELSE 0 END
                ELSE floor(GREATEST(1, gate.burst - GREATEST(0, ceil(gate.rate_n * 30000.0 / gate.rate_us - 0.1))) - GREATEST(gate.spent_until - at_us, 0)::numeric * gate.rate_n / gate.rate_us)::integer END);
        END IF;
    END LOOP;
    n := GREATEST(n, 0);
END
$$;
