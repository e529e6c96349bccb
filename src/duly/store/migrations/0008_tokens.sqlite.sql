-- duly 0008: who may use the HTTP API and the dashboard. A token is kept as its SHA-256 alone; a session is a token too.

CREATE TABLE duly_tokens (
    id           text NOT NULL PRIMARY KEY,
    hash         text NOT NULL UNIQUE,
    kind         text NOT NULL CHECK (kind IN ('token', 'session')),
    name         text NOT NULL,
    scopes       text NOT NULL,
    tenant       text,
    created_at   integer NOT NULL,
    created_by   text,
    expires_at   integer,
    last_used_at integer
) WITHOUT ROWID;
