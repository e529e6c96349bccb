-- duly 0008: who may use the HTTP API and the dashboard. A token is kept as its SHA-256 alone; a session is a token too.

CREATE TABLE duly.tokens (
    id           uuid PRIMARY KEY,
    hash         text COLLATE "C" NOT NULL UNIQUE,
    kind         text COLLATE "C" NOT NULL CHECK (kind IN ('token', 'session')),
    name         text NOT NULL,
    scopes       text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C",
    created_at   bigint NOT NULL,
    created_by   text,
    expires_at   bigint,
    last_used_at bigint
);
