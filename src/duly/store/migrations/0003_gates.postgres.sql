-- duly 0003: gates. A queue, a task or a tenant may be paused; a claim takes nothing through a gate that is closed.
-- Tenants share a queue by weight; who is not in tenants has the weight 1.

CREATE TABLE duly.gates (
    scope         text COLLATE "C" NOT NULL CHECK (scope IN ('queue', 'task', 'tenant')),
    name          text COLLATE "C" NOT NULL,
    paused_at     bigint,
    paused_until  bigint,
    paused_by     text,
    paused_reason text,
    PRIMARY KEY (scope, name)
);
CREATE INDEX gates_paused ON duly.gates (paused_until) WHERE paused_at IS NOT NULL;

CREATE TABLE duly.tenants (
    name   text COLLATE "C" PRIMARY KEY,
    weight real NOT NULL DEFAULT 1 CHECK (weight > 0)
);

-- In a queue that is not fair, jobs of all tenants go by rank alone.
ALTER TABLE duly.queues ADD COLUMN fair boolean NOT NULL DEFAULT true;
