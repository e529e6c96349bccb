-- duly 0002: recurring jobs. A recurring job is a row in jobs; these say when it comes again.
-- A disabled one is in no place; its token is kept in recurring.

CREATE TABLE duly.schedules (
    id           uuid PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    task         text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    name         text COLLATE "C",
    description  text,
    rule         text NOT NULL,
    anchor_at    bigint NOT NULL,
    misfire      text NOT NULL DEFAULT 'once' CHECK (misfire IN ('once', 'skip', 'all')),
    grace_us     bigint NOT NULL DEFAULT 60000000 CHECK (grace_us >= 0),
    cap          integer NOT NULL DEFAULT 100 CHECK (cap >= 1),
    overlap      text NOT NULL DEFAULT 'skip' CHECK (overlap IN ('skip', 'queue', 'allow')),
    failure      text NOT NULL DEFAULT 'backoff' CHECK (failure IN ('backoff', 'advance')),
    pause_after  integer CHECK (pause_after >= 1),
    declared     text,
    declared_in  text,
    created_by   text,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL
);
CREATE UNIQUE INDEX schedules_by_key ON duly.schedules (tenant, task, key);
CREATE UNIQUE INDEX schedules_by_name ON duly.schedules (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX schedules_declared ON duly.schedules (declared_in) WHERE declared_in IS NOT NULL;

CREATE TABLE duly.recurring (
    id              uuid PRIMARY KEY,
    enabled         boolean NOT NULL,
    next_run_at     bigint,
    tick_at         bigint,
    last_tick_at    bigint,
    last_run_at     bigint,
    failures        integer NOT NULL DEFAULT 0,
    token           bigint NOT NULL DEFAULT 0,
    last_outcome    text,
    last_error      text,
    disabled_at     bigint,
    disabled_by     text,
    disabled_reason text
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);

CREATE TABLE duly.mirrors (
    task text COLLATE "C" PRIMARY KEY,
    sql  text,
    hook boolean NOT NULL DEFAULT false
);

CREATE INDEX scheduled_spawning ON duly.scheduled (run_at, id) WHERE hold = 5;

CREATE OR REPLACE VIEW duly.places AS
    SELECT id, 'scheduled' AS state, run_at, token, attempt, crashes, NULL::bigint AS claimed_at, NULL::bigint AS finished_at,
           NULL::uuid AS worker_id, NULL::bigint AS cancel_at, NULL::real AS progress, NULL AS progress_text, NULL AS reason, NULL AS detail
    FROM duly.scheduled
    UNION ALL
    SELECT id, 'queued', run_at, token, attempt, crashes, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM duly.waiting
    UNION ALL
    SELECT id, 'queued', run_at, token, attempt, crashes, NULL, NULL, NULL, NULL, NULL, NULL, 'parked: ' || reason, detail FROM duly.parked
    UNION ALL
    SELECT id, 'running', run_at, token, attempt, crashes, claimed_at, NULL, worker_id, cancel_at, progress, progress_text, NULL, NULL FROM duly.running
    UNION ALL
    SELECT id, state, NULL, token, attempt, COALESCE(crashes, 0::smallint), NULL, finished_at, NULL, NULL, NULL, NULL, reason, NULL FROM duly.ended
    UNION ALL
    SELECT r.id, 'disabled', r.next_run_at, r.token, 0, 0::smallint, NULL, NULL, NULL, NULL, NULL, NULL, r.disabled_reason, NULL
    FROM duly.recurring r WHERE NOT r.enabled AND NOT EXISTS (SELECT 1 FROM duly.running u WHERE u.id = r.id);
