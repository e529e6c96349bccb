-- duly 0004: what operators did. Rows are added and, when old, forgotten; never changed.

CREATE TABLE duly_audit (
    id      integer PRIMARY KEY AUTOINCREMENT,
    at      integer NOT NULL,
    who     text,
    via     text NOT NULL,
    action  text NOT NULL,
    job_id  text,
    tenant  text,
    task    text,
    subject text,
    reason  text,
    before  text,
    after   text
);
CREATE INDEX duly_audit_by_time ON duly_audit (at);
CREATE INDEX duly_audit_by_job ON duly_audit (job_id, id) WHERE job_id IS NOT NULL;
