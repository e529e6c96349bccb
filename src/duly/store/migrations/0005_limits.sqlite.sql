-- duly 0005: limits, rates and quotas. A gate says how many may run at once (slots), how many may start in a time (rate_n in
-- rate_us: a bucket that holds `burst`, or with no burst a number for each minute or day), and how many may wait.
-- Scopes: queue, task, tenant; minute and day are a tenant's quotas; keys says what holds for each key of a group.

CREATE TABLE duly_gates_of_0005 (
    scope          text NOT NULL CHECK (scope IN ('queue', 'task', 'tenant', 'minute', 'day', 'keys')),
    name           text NOT NULL,
    slots          integer CHECK (slots >= 0),
    rate_n         integer CHECK (rate_n > 0),
    rate_us        integer CHECK (rate_us > 0),
    burst          integer CHECK (burst > 0),
    most_waiting   integer CHECK (most_waiting >= 0),
    refuses        integer NOT NULL DEFAULT 0,
    breaker        text,
    meters_keys    integer NOT NULL DEFAULT 0,
    by_hand        integer NOT NULL DEFAULT 0,
    declared       text,
    limited_at     integer,
    stamped        integer NOT NULL DEFAULT 0,
    counted_from   integer NOT NULL DEFAULT 0, -- only PostgreSQL needs it: here nothing stays that is dead
    spent_until    integer NOT NULL DEFAULT 0,
    used           integer NOT NULL DEFAULT 0,
    blocked_until  integer,
    blocked_reason text,
    paused_at      integer,
    paused_until   integer,
    paused_by      text,
    paused_reason  text,
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;
INSERT INTO duly_gates_of_0005 (scope, name, paused_at, paused_until, paused_by, paused_reason)
SELECT scope, name, paused_at, paused_until, paused_by, paused_reason FROM duly_gates;
INSERT INTO duly_gates_of_0005 (scope, name, slots, stamped) SELECT scope, name, slots, 1 FROM duly_limits WHERE true
ON CONFLICT (scope, name) DO UPDATE SET slots = excluded.slots, stamped = 1;
DROP TABLE duly_gates;
DROP TABLE duly_limits;
ALTER TABLE duly_gates_of_0005 RENAME TO duly_gates;
CREATE INDEX duly_gates_paused ON duly_gates (paused_until) WHERE paused_at IS NOT NULL;
CREATE INDEX duly_gates_blocked ON duly_gates (blocked_until) WHERE blocked_until IS NOT NULL;

-- Which limits a run is counted under: 1 its task's, 2 its queue's, 4 its tenant's.
DROP INDEX duly_running_limited;
CREATE INDEX duly_running_by_task ON duly_running (task, leased_until) WHERE limited & 1 <> 0;
CREATE INDEX duly_running_by_queue ON duly_running (queue, leased_until) WHERE limited & 2 <> 0;
CREATE INDEX duly_running_by_tenant ON duly_running (tenant, leased_until) WHERE limited & 4 <> 0;

-- Keys: jobs with one key share the slots and the rate of that key. A job with a key is let into its lane only while there
-- is room; before, it is parked ('arrived' until somebody has looked, then 'key'), by rank. What `admitted` names counts while
-- it stands in waiting or running; with `look` somebody left word that a worker should look at the key.
ALTER TABLE duly_jobs ADD COLUMN limit_key text;
CREATE INDEX duly_jobs_by_limit_key ON duly_jobs (id) WHERE limit_key IS NOT NULL;
ALTER TABLE duly_parked ADD COLUMN rank integer;
CREATE INDEX duly_parked_by_key ON duly_parked (mark, rank, id) WHERE rank IS NOT NULL;
CREATE TABLE duly_admitted (
    key    text NOT NULL,
    job_id text NOT NULL,
    look   integer NOT NULL DEFAULT 0,
    PRIMARY KEY (key, job_id)
) WITHOUT ROWID;
CREATE INDEX duly_admitted_to_look_at ON duly_admitted (key) WHERE look;
CREATE TABLE duly_keys (
    name           text NOT NULL PRIMARY KEY,
    own_slots      integer CHECK (own_slots >= 0),
    own_rate       integer NOT NULL DEFAULT 0,
    rate_n         integer CHECK (rate_n > 0),
    rate_us        integer CHECK (rate_us > 0),
    burst          integer CHECK (burst > 0),
    spent_until    integer NOT NULL DEFAULT 0,
    opens_at       integer,
    breaker_state  text CHECK (breaker_state IN ('open', 'probing')),
    opened         integer NOT NULL DEFAULT 0,
    counting_since integer,
    tries          integer NOT NULL DEFAULT 0,
    failures       integer NOT NULL DEFAULT 0,
    blocked_until  integer,
    blocked_reason text,
    paused_at      integer,
    paused_until   integer,
    paused_by      text,
    paused_reason  text
) WITHOUT ROWID;
CREATE INDEX duly_keys_by_opening ON duly_keys (opens_at) WHERE opens_at IS NOT NULL;
