-- duly 0002: recurring jobs. A recurring job is a row in jobs; these say when it comes again.
-- A disabled one is in no place; its token is kept in recurring.

CREATE TABLE duly_schedules (
    id           text NOT NULL PRIMARY KEY,
    tenant       text NOT NULL,
    task         text NOT NULL,
    key          text NOT NULL,
    name         text,
    description  text,
    rule         text NOT NULL,
    anchor_at    integer NOT NULL,
    misfire      text NOT NULL DEFAULT 'once' CHECK (misfire IN ('once', 'skip', 'all')),
    grace_us     integer NOT NULL DEFAULT 60000000 CHECK (grace_us >= 0),
    cap          integer NOT NULL DEFAULT 100 CHECK (cap >= 1),
    overlap      text NOT NULL DEFAULT 'skip' CHECK (overlap IN ('skip', 'queue', 'allow')),
    failure      text NOT NULL DEFAULT 'backoff' CHECK (failure IN ('backoff', 'advance')),
    pause_after  integer CHECK (pause_after >= 1),
    declared     text,
    declared_in  text,
    created_by   text,
    created_at   integer NOT NULL,
    updated_at   integer NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX duly_schedules_by_key ON duly_schedules (tenant, task, key);
CREATE UNIQUE INDEX duly_schedules_by_name ON duly_schedules (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX duly_schedules_declared ON duly_schedules (declared_in) WHERE declared_in IS NOT NULL;

CREATE TABLE duly_recurring (
    id              text NOT NULL PRIMARY KEY,
    enabled         integer NOT NULL,
    next_run_at     integer,
    tick_at         integer,
    last_tick_at    integer,
    last_run_at     integer,
    failures        integer NOT NULL DEFAULT 0,
    token           integer NOT NULL DEFAULT 0,
    last_outcome    text,
    last_error      text,
    disabled_at     integer,
    disabled_by     text,
    disabled_reason text
) WITHOUT ROWID;

CREATE TABLE duly_mirrors (
    task text NOT NULL PRIMARY KEY,
    sql  text,
    hook integer NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX duly_scheduled_spawning ON duly_scheduled (run_at, id) WHERE hold = 5;

DROP VIEW duly_places;
CREATE VIEW duly_places AS
    SELECT id, 'scheduled' AS state, run_at, token, attempt, crashes, NULL AS claimed_at, NULL AS finished_at,
           NULL AS worker_id, NULL AS cancel_at, NULL AS progress, NULL AS progress_text, NULL AS reason, NULL AS detail
    FROM duly_scheduled
    UNION ALL
    SELECT id, 'queued', run_at, token, attempt, crashes, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM duly_waiting
    UNION ALL
    SELECT id, 'queued', run_at, token, attempt, crashes, NULL, NULL, NULL, NULL, NULL, NULL, 'parked: ' || reason, detail FROM duly_parked
    UNION ALL
    SELECT id, 'running', run_at, token, attempt, crashes, claimed_at, NULL, worker_id, cancel_at, progress, progress_text, NULL, NULL FROM duly_running
    UNION ALL
    SELECT id, state, NULL, token, attempt, crashes, NULL, finished_at, NULL, NULL, NULL, NULL, reason, NULL FROM duly_ended
    UNION ALL
    SELECT r.id, 'disabled', r.next_run_at, r.token, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, r.disabled_reason, NULL
    FROM duly_recurring r WHERE NOT r.enabled AND NOT EXISTS (SELECT 1 FROM duly_running u WHERE u.id = r.id);
