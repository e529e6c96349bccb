-- duly 0003: gates. A queue, a task or a tenant may be paused; a claim takes nothing through a gate that is closed.

CREATE TABLE duly_gates (
    scope         text NOT NULL CHECK (scope IN ('queue', 'task', 'tenant')),
    name          text NOT NULL,
    paused_at     integer,
    paused_until  integer,
    paused_by     text,
    paused_reason text,
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;
CREATE INDEX duly_gates_paused ON duly_gates (paused_until) WHERE paused_at IS NOT NULL;
