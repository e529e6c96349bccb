-- duly 0001: the core tables.
-- A job is in exactly one place: scheduled, waiting, parked, running or ended.
-- Instants are microseconds since the epoch, UTC.

CREATE TABLE duly.jobs (
    id           uuid PRIMARY KEY,
    task         text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL DEFAULT 'default',
    tenant       text COLLATE "C" NOT NULL DEFAULT '',
    args         json NOT NULL DEFAULT '{}',
    priority     smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 100),
    max_attempts integer NOT NULL DEFAULT 5 CHECK (max_attempts >= 1),
    retry        text,
    timeout_us   bigint CHECK (timeout_us > 0),
    expires_at   bigint,
    created_at   bigint NOT NULL,
    enqueued_by  text,
    unique_key   text,
    tags         text,
    headers      text
);

CREATE TABLE duly.scheduled (
    id       uuid PRIMARY KEY,
    run_at   bigint NOT NULL,
    queue    text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    task     text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    token    bigint NOT NULL DEFAULT 0 CHECK (token >= 0),
    attempt  integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    crashes  smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    hold     smallint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);
CREATE INDEX scheduled_by_time ON duly.scheduled (run_at, id);

CREATE TABLE duly.waiting (
    queue    text COLLATE "C" NOT NULL,
    suspect  smallint NOT NULL DEFAULT 0,
    tenant   text COLLATE "C" NOT NULL,
    task     text COLLATE "C" NOT NULL,
    rank     bigint NOT NULL,
    id       uuid PRIMARY KEY,
    run_at   bigint NOT NULL,
    priority smallint NOT NULL,
    token    bigint NOT NULL DEFAULT 0 CHECK (token >= 0),
    attempt  integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    crashes  smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    hold     smallint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX waiting_lane ON duly.waiting (queue, suspect, tenant, task, rank, id);

CREATE TABLE duly.parked (
    id        uuid PRIMARY KEY,
    queue     text COLLATE "C" NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    task      text COLLATE "C" NOT NULL,
    run_at    bigint NOT NULL,
    priority  smallint NOT NULL,
    token     bigint NOT NULL DEFAULT 0 CHECK (token >= 0),
    attempt   integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    crashes   smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    hold      smallint NOT NULL DEFAULT 0,
    parked_at bigint NOT NULL,
    reason    text NOT NULL,
    detail    text,
    mark      text
);
CREATE INDEX parked_by_reason ON duly.parked (reason, task, parked_at);

-- The columns of running, ended and runs are in an order that leaves no gaps: each row is written for every job.
CREATE TABLE duly.running (
    id            uuid PRIMARY KEY,
    worker_id     uuid NOT NULL,
    token         bigint NOT NULL CHECK (token > 0),
    run_at        bigint NOT NULL,
    claimed_at    bigint NOT NULL,
    leased_until  bigint NOT NULL,
    attempt       integer NOT NULL CHECK (attempt > 0),
    priority      smallint NOT NULL,
    crashes       smallint NOT NULL CHECK (crashes >= 0),
    hold          smallint NOT NULL,
    limited       boolean NOT NULL DEFAULT false,
    queue         text COLLATE "C" NOT NULL,
    tenant        text COLLATE "C" NOT NULL,
    task          text COLLATE "C" NOT NULL,
    deadline_at   bigint,
    cancel_at     bigint,
    cancel_reason text,
    progress      real,
    progress_text text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX running_limited ON duly.running (task, leased_until) WHERE limited;
CREATE INDEX running_cancelled ON duly.running (worker_id) WHERE cancel_at IS NOT NULL;

CREATE TABLE duly.ended (
    id          uuid PRIMARY KEY,
    finished_at bigint NOT NULL,
    token       bigint NOT NULL,
    attempt     integer NOT NULL,
    crashes     smallint,  -- NULL is 0, as it mostly is: that takes no room
    hold        smallint,
    state       text NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled')),
    reason      text
);
CREATE INDEX ended_by_state ON duly.ended (state, finished_at);

CREATE TABLE duly.runs (
    job_id      uuid NOT NULL,
    worker_id   uuid NOT NULL,
    token       bigint NOT NULL,
    started_at  bigint NOT NULL,
    finished_at bigint NOT NULL,
    attempt     integer NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'snoozed', 'released', 'crashed', 'expired')),
    error_kind  text,
    error       text,
    traceback   text,
    result      text,
    log         text,
    PRIMARY KEY (job_id, token)
);
-- By the second, so that a page that fills again after a prune does not change its summary for every row.
CREATE INDEX runs_by_second ON duly.runs USING brin ((finished_at / 1000000)) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE duly.rollups (
    period_at   bigint NOT NULL,
    period_us   bigint NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    task        text COLLATE "C" NOT NULL,
    shard       integer NOT NULL,
    runs        bigint NOT NULL DEFAULT 0,
    succeeded   bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    retried     bigint NOT NULL DEFAULT 0,
    cancelled   bigint NOT NULL DEFAULT 0,
    crashed     bigint NOT NULL DEFAULT 0,
    recovered   bigint NOT NULL DEFAULT 0,
    ran_us      bigint NOT NULL DEFAULT 0,
    waited_us   bigint NOT NULL DEFAULT 0,
    wait_5ms    bigint NOT NULL DEFAULT 0,
    wait_20ms   bigint NOT NULL DEFAULT 0,
    wait_100ms  bigint NOT NULL DEFAULT 0,
    wait_500ms  bigint NOT NULL DEFAULT 0,
    wait_1s     bigint NOT NULL DEFAULT 0,
    wait_5s     bigint NOT NULL DEFAULT 0,
    wait_15s    bigint NOT NULL DEFAULT 0,
    wait_1m     bigint NOT NULL DEFAULT 0,
    wait_5m     bigint NOT NULL DEFAULT 0,
    wait_30m    bigint NOT NULL DEFAULT 0,
    wait_2h     bigint NOT NULL DEFAULT 0,
    wait_more   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (period_us, period_at, tenant, queue, task, shard)
) WITH (fillfactor = 70);

CREATE TABLE duly.unique_keys (
    tenant  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    job_id  uuid NOT NULL,
    scope   smallint NOT NULL,
    until   bigint,
    next_id uuid,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX unique_keys_by_job ON duly.unique_keys (job_id);

CREATE TABLE duly.limits (
    scope text COLLATE "C" NOT NULL,
    name  text COLLATE "C" NOT NULL,
    slots integer NOT NULL CHECK (slots >= 0),
    PRIMARY KEY (scope, name)
);

CREATE TABLE duly.queues (
    name       text COLLATE "C" PRIMARY KEY,
    horizon_us bigint CHECK (horizon_us >= 0)
);

CREATE TABLE duly.workers (
    id                 uuid PRIMARY KEY,
    host               text NOT NULL,
    boot_id            text NOT NULL,
    pid_namespace      text NOT NULL,
    pid                bigint NOT NULL,
    process_started_at text NOT NULL,
    started_at         bigint NOT NULL,
    seen_at            bigint NOT NULL,
    lease_us           bigint NOT NULL,
    queues             text NOT NULL,
    tasks              text NOT NULL,
    slots              integer NOT NULL,
    wake               text,
    idle               boolean NOT NULL DEFAULT false,
    state              text NOT NULL DEFAULT 'running',
    version            text NOT NULL
);

-- Where a job is, whichever table holds it. Read by people and by the list and show commands.
CREATE VIEW duly.places AS
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
    SELECT id, state, NULL, token, attempt, COALESCE(crashes, 0::smallint), NULL, finished_at, NULL, NULL, NULL, NULL, reason, NULL FROM duly.ended;

-- For programs in other languages: SELECT duly.enqueue('send_welcome', '{"user_id": 42}');
-- Documented in docs/howto/enqueue-from-sql.md. 6600000000 is the default horizon of duly.domain.rank.
CREATE FUNCTION duly.enqueue(
    task         text,
    args         json DEFAULT '{}',
    queue        text DEFAULT 'default',
    tenant       text DEFAULT '',
    priority     integer DEFAULT 0,
    delay        interval DEFAULT NULL,
    run_at       timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 5,
    enqueued_by  text DEFAULT NULL,
    job_id       uuid DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    at      timestamptz := COALESCE(enqueue.run_at, statement_timestamp() + enqueue.delay, statement_timestamp());
    now_us  bigint := (extract(epoch FROM statement_timestamp()) * 1000000)::bigint;
    due_us  bigint := (extract(epoch FROM at) * 1000000)::bigint;
    ms      bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    new_id  uuid := enqueue.job_id;
    payload text;
BEGIN
    IF enqueue.task !~ '^[A-Za-z0-9_.:-]{1,128}$' OR enqueue.queue !~ '^[A-Za-z0-9_.:-]{1,128}$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('task %L or queue %L is no name', enqueue.task, enqueue.queue),
            HINT = 'Use 1 to 128 of the characters A-Z a-z 0-9 _ . : -';
    END IF;
    IF json_typeof(enqueue.args) <> 'object' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('args is a JSON %s', json_typeof(enqueue.args)),
            HINT = 'Pass an object that names the arguments, for example {"user_id": 42}';
    END IF;
    IF enqueue.delay < interval '0' OR (enqueue.delay IS NOT NULL AND enqueue.run_at IS NOT NULL) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('delay %s is negative, or is given beside run_at', enqueue.delay),
            HINT = 'Pass either a delay from now on or a time';
    END IF;
    IF new_id IS NULL THEN  -- a UUID of version 7: the time in milliseconds, then chance
        new_id := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send(ms) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;
    END IF;
    INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, created_at, enqueued_by)
    VALUES (new_id, enqueue.task, enqueue.queue, enqueue.tenant, enqueue.args, enqueue.priority, enqueue.max_attempts,
            now_us, enqueue.enqueued_by)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN  -- called again with the same id: it is stored already
        RETURN new_id;
    END IF;
    IF due_us > now_us THEN
        INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority)
        VALUES (new_id, due_us, enqueue.queue, enqueue.tenant, enqueue.task, enqueue.priority);
    ELSE
        INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority)
        SELECT j.queue, j.tenant, j.task, due_us - j.priority::bigint * (COALESCE(q.horizon_us, 6600000000) / 100), j.id,
               due_us, j.priority
        FROM duly.jobs j LEFT JOIN duly.queues q ON q.name = j.queue WHERE j.id = new_id;
    END IF;
    payload := concat_ws(chr(31), CASE WHEN due_us > now_us THEN 'due' ELSE 'jobs' END,
        enqueue.queue, enqueue.tenant, enqueue.task, '', '');
    PERFORM pg_notify(left('duly_' || nspname, 63), CASE WHEN octet_length(payload) <= 400 THEN payload ELSE 'look' END)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'duly.jobs'::regclass;
    RETURN new_id;
END
$$;

-- One plain job in one round trip: store it, commit, and only then see whether a worker sleeps that must be woken.
-- For our own autocommit connections; inside a transaction duly.enqueue or the plain statements do.
CREATE PROCEDURE duly.store_job(
    job_id       uuid,
    task         text,
    queue        text,
    tenant       text,
    args         json,
    priority     smallint,
    max_attempts integer,
    horizon      bigint,
    channel      text,
    payload      text,
    now_us       bigint
) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, created_at)
    VALUES (store_job.job_id, store_job.task, store_job.queue, store_job.tenant, store_job.args, store_job.priority,
            store_job.max_attempts, store_job.now_us)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority)
        VALUES (store_job.queue, store_job.tenant, store_job.task,
                store_job.now_us - store_job.priority::bigint
                    * (COALESCE((SELECT q.horizon_us FROM duly.queues q WHERE q.name = store_job.queue), store_job.horizon) / 100),
                store_job.job_id, store_job.now_us, store_job.priority);
    END IF;
    COMMIT;
    IF store_job.channel IS NOT NULL AND EXISTS (SELECT 1 FROM duly.workers w WHERE w.idle) THEN
        PERFORM pg_notify(store_job.channel, store_job.payload);
    END IF;
END
$$;
