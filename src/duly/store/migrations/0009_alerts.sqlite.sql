-- duly 0009: alerts. One row per alert; at most one of a rule and a subject is active. Who shall be told is in alert_notices.

CREATE TABLE duly_alerts (
    id         text PRIMARY KEY,
    rule       text NOT NULL,
    subject    text NOT NULL,
    queue      text,
    task       text,
    value      real NOT NULL,
    threshold  real NOT NULL,
    message    text NOT NULL,
    details    text NOT NULL DEFAULT '{}',
    started_at integer NOT NULL,
    seen_at    integer NOT NULL,
    ok_since   integer,
    ended_at   integer,
    told       integer NOT NULL DEFAULT 0,
    acked_at   integer,
    acked_by   text
);
CREATE UNIQUE INDEX duly_alerts_active ON duly_alerts (rule, subject) WHERE ended_at IS NULL;
CREATE INDEX duly_alerts_ended ON duly_alerts (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE duly_alert_notices (
    id           text PRIMARY KEY,
    alert_id     text NOT NULL,
    event        text NOT NULL CHECK (event IN ('started', 'ended')),
    channel      text NOT NULL CHECK (channel IN ('log', 'webhook', 'callback')),
    body         text NOT NULL,
    made_at      integer NOT NULL,
    tries        integer NOT NULL DEFAULT 0,
    next_try_at  integer NOT NULL,
    leased_until integer,
    done_at      integer,
    error        text
);
CREATE UNIQUE INDEX duly_alert_notices_once ON duly_alert_notices (alert_id, channel, event);
CREATE INDEX duly_alert_notices_open ON duly_alert_notices (next_try_at) WHERE done_at IS NULL;

-- Whose turn it is to look. Each turn has a number; whoever no longer has it writes nothing.
CREATE TABLE duly_alert_turns (
    id      integer PRIMARY KEY CHECK (id = 1),
    turn    integer NOT NULL,
    next_at integer NOT NULL,
    holder  text NOT NULL
);

CREATE TABLE duly_alert_silences (
    id       text PRIMARY KEY,
    rule     text,
    subject  text,
    made_at  integer NOT NULL,
    until_at integer NOT NULL,
    made_by  text,
    reason   text
);

CREATE INDEX duly_recurring_disabled ON duly_recurring (disabled_at) WHERE NOT enabled;
