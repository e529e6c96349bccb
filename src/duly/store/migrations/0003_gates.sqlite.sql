-- duly 0003: gates. A queue, a task or a tenant may be paused; a claim takes nothing through a gate that is closed.
-- Tenants share a queue by weight; who is not in tenants has the weight 1.

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

CREATE TABLE duly_tenants (
    name   text NOT NULL PRIMARY KEY,
    weight real NOT NULL DEFAULT 1 CHECK (weight > 0)
) WITHOUT ROWID;

-- In a queue that is not fair, jobs of all tenants go by rank alone.
ALTER TABLE duly_queues ADD COLUMN fair integer NOT NULL DEFAULT 1;
