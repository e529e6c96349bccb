-- duly 0001: the core tables, for SQLite.
-- A job is in exactly one place: scheduled, waiting, parked, running or ended.
-- Instants are microseconds since the epoch, UTC.

CREATE TABLE duly_jobs (
    id           text NOT NULL PRIMARY KEY,
    task         text NOT NULL,
    queue        text NOT NULL DEFAULT 'default',
    tenant       text NOT NULL DEFAULT '',
    args         text NOT NULL DEFAULT '{}',
    priority     integer NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 100),
    max_attempts integer NOT NULL DEFAULT 5 CHECK (max_attempts >= 1),
    retry        text,
    timeout_us   integer CHECK (timeout_us > 0),
    expires_at   integer,
    created_at   integer NOT NULL,
    enqueued_by  text,
    unique_key   text,
    tags         text,
    headers      text
) WITHOUT ROWID;

CREATE TABLE duly_scheduled (
    id       text NOT NULL PRIMARY KEY,
    run_at   integer NOT NULL,
    queue    text NOT NULL,
    tenant   text NOT NULL,
    task     text NOT NULL,
    priority integer NOT NULL,
    token    integer NOT NULL DEFAULT 0 CHECK (token >= 0),
    attempt  integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    crashes  integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    hold     integer NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX duly_scheduled_by_time ON duly_scheduled (run_at, id);

CREATE TABLE duly_waiting (
    queue    text NOT NULL,
    suspect  integer NOT NULL DEFAULT 0,
    tenant   text NOT NULL,
    task     text NOT NULL,
    rank     integer NOT NULL,
    id       text NOT NULL UNIQUE,
    run_at   integer NOT NULL,
    priority integer NOT NULL,
    token    integer NOT NULL DEFAULT 0 CHECK (token >= 0),
    attempt  integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    crashes  integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    hold     integer NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, suspect, tenant, task, rank, id)
) WITHOUT ROWID;

CREATE TABLE duly_parked (
    id        text NOT NULL PRIMARY KEY,
    queue     text NOT NULL,
    tenant    text NOT NULL,
    task      text NOT NULL,
    run_at    integer NOT NULL,
    priority  integer NOT NULL,
    token     integer NOT NULL DEFAULT 0 CHECK (token >= 0),
    attempt   integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    crashes   integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    hold      integer NOT NULL DEFAULT 0,
    parked_at integer NOT NULL,
    reason    text NOT NULL,
    detail    text,
    mark      text
);
CREATE INDEX duly_parked_by_reason ON duly_parked (reason, task, parked_at);

CREATE TABLE duly_running (
    id            text NOT NULL PRIMARY KEY,
    token         integer NOT NULL CHECK (token > 0),
    queue         text NOT NULL,
    tenant        text NOT NULL,
    task          text NOT NULL,
    priority      integer NOT NULL,
    run_at        integer NOT NULL,
    attempt       integer NOT NULL CHECK (attempt > 0),
    crashes       integer NOT NULL CHECK (crashes >= 0),
    hold          integer NOT NULL,
    limited       integer NOT NULL DEFAULT 0,
    worker_id     text NOT NULL,
    claimed_at    integer NOT NULL,
    leased_until  integer NOT NULL,
    deadline_at   integer,
    cancel_at     integer,
    cancel_reason text,
    progress      real,
    progress_text text
) WITHOUT ROWID;
CREATE INDEX duly_running_limited ON duly_running (task, leased_until) WHERE limited;
CREATE INDEX duly_running_cancelled ON duly_running (worker_id) WHERE cancel_at IS NOT NULL;

CREATE TABLE duly_ended (
    id          text NOT NULL PRIMARY KEY,
    state       text NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled')),
    finished_at integer NOT NULL,
    token       integer NOT NULL,
    attempt     integer NOT NULL,
    crashes     integer NOT NULL,
    hold        integer NOT NULL DEFAULT 0,
    reason      text
) WITHOUT ROWID;
CREATE INDEX duly_ended_by_state ON duly_ended (state, finished_at, id);

CREATE TABLE duly_runs (
    job_id      text NOT NULL,
    token       integer NOT NULL,
    attempt     integer NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'snoozed', 'released', 'crashed', 'expired')),
    started_at  integer NOT NULL,
    finished_at integer NOT NULL,
    worker_id   text NOT NULL,
    error_kind  text,
    error       text,
    traceback   text,
    result      text,
    log         text,
    PRIMARY KEY (job_id, token)
) WITHOUT ROWID;
CREATE INDEX duly_runs_by_time ON duly_runs (finished_at);

CREATE TABLE duly_rollups (
    period_at   integer NOT NULL,
    period_us   integer NOT NULL,
    tenant      text NOT NULL,
    queue       text NOT NULL,
    task        text NOT NULL,
    shard       integer NOT NULL,
    runs        integer NOT NULL DEFAULT 0,
    succeeded   integer NOT NULL DEFAULT 0,
    failed      integer NOT NULL DEFAULT 0,
    retried     integer NOT NULL DEFAULT 0,
    cancelled   integer NOT NULL DEFAULT 0,
    crashed     integer NOT NULL DEFAULT 0,
    recovered   integer NOT NULL DEFAULT 0,
    ran_us      integer NOT NULL DEFAULT 0,
    waited_us   integer NOT NULL DEFAULT 0,
    wait_5ms    integer NOT NULL DEFAULT 0,
    wait_20ms   integer NOT NULL DEFAULT 0,
    wait_100ms  integer NOT NULL DEFAULT 0,
    wait_500ms  integer NOT NULL DEFAULT 0,
    wait_1s     integer NOT NULL DEFAULT 0,
    wait_5s     integer NOT NULL DEFAULT 0,
    wait_15s    integer NOT NULL DEFAULT 0,
    wait_1m     integer NOT NULL DEFAULT 0,
    wait_5m     integer NOT NULL DEFAULT 0,
    wait_30m    integer NOT NULL DEFAULT 0,
    wait_2h     integer NOT NULL DEFAULT 0,
    wait_more   integer NOT NULL DEFAULT 0,
    PRIMARY KEY (period_us, period_at, tenant, queue, task, shard)
) WITHOUT ROWID;

CREATE TABLE duly_unique_keys (
    tenant  text NOT NULL,
    key     text NOT NULL,
    job_id  text NOT NULL,
    scope   integer NOT NULL,
    until   integer,
    next_id text,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX duly_unique_keys_by_job ON duly_unique_keys (job_id);

CREATE TABLE duly_limits (
    scope text NOT NULL,
    name  text NOT NULL,
    slots integer NOT NULL CHECK (slots >= 0),
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;

CREATE TABLE duly_queues (
    name       text PRIMARY KEY,
    horizon_us integer CHECK (horizon_us >= 0)
) WITHOUT ROWID;

CREATE TABLE duly_workers (
    id                 text NOT NULL PRIMARY KEY,
    host               text NOT NULL,
    boot_id            text NOT NULL,
    pid_namespace      text NOT NULL,
    pid                integer NOT NULL,
    process_started_at text NOT NULL,
    started_at         integer NOT NULL,
    seen_at            integer NOT NULL,
    lease_us           integer NOT NULL,
    queues             text NOT NULL,
    tasks              text NOT NULL,
    slots              integer NOT NULL,
    wake               text,
    idle               integer NOT NULL DEFAULT 0,
    state              text NOT NULL DEFAULT 'running',
    version            text NOT NULL
);

-- Where a job is, whichever table holds it. Read by people and by the list and show commands.
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
    SELECT id, state, NULL, token, attempt, crashes, NULL, finished_at, NULL, NULL, NULL, NULL, reason, NULL FROM duly_ended;
