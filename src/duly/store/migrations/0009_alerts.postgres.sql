-- duly 0009: alerts. One row per alert; at most one of a rule and a subject is active. Who shall be told is in alert_notices.

CREATE TABLE duly.alerts (
    id         uuid PRIMARY KEY,
    rule       text COLLATE "C" NOT NULL,
    subject    text COLLATE "C" NOT NULL,
    queue      text COLLATE "C",
    task       text COLLATE "C",
    value      double precision NOT NULL,
    threshold  double precision NOT NULL,
    message    text NOT NULL,
    details    text NOT NULL DEFAULT '{}',
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    ok_since   bigint,
    ended_at   bigint,
    told       boolean NOT NULL DEFAULT false,
    acked_at   bigint,
    acked_by   text
);
CREATE UNIQUE INDEX alerts_active ON duly.alerts (rule, subject) WHERE ended_at IS NULL;
CREATE INDEX alerts_ended ON duly.alerts (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE duly.alert_notices (
    id           uuid PRIMARY KEY,
    alert_id     uuid NOT NULL,
    event        text NOT NULL CHECK (event IN ('started', 'ended')),
    channel      text NOT NULL CHECK (channel IN ('log', 'webhook', 'callback')),
    body         text NOT NULL,
    made_at      bigint NOT NULL,
    tries        integer NOT NULL DEFAULT 0,
    next_try_at  bigint NOT NULL,
    leased_until bigint,
    done_at      bigint,
    error        text
);
CREATE UNIQUE INDEX alert_notices_once ON duly.alert_notices (alert_id, channel, event);
CREATE INDEX alert_notices_open ON duly.alert_notices (next_try_at) WHERE done_at IS NULL;

-- Whose turn it is to look. Each turn has a number; whoever no longer has it writes nothing.
CREATE TABLE duly.alert_turns (
    id      integer PRIMARY KEY CHECK (id = 1),
    turn    bigint NOT NULL,
    next_at bigint NOT NULL,
    holder  text NOT NULL
);

CREATE TABLE duly.alert_silences (
    id       uuid PRIMARY KEY,
    rule     text COLLATE "C",
    subject  text COLLATE "C",
    made_at  bigint NOT NULL,
    until_at bigint NOT NULL,
    made_by  text,
    reason   text
);

CREATE INDEX recurring_disabled ON duly.recurring (disabled_at) WHERE NOT enabled;
