-- duly 0004: what operators did. Rows are added and, when old, forgotten; never changed.

CREATE TABLE duly.audit (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      bigint NOT NULL,
    who     text COLLATE "C",
    via     text COLLATE "C" NOT NULL,
    action  text COLLATE "C" NOT NULL,
    job_id  uuid,
    tenant  text COLLATE "C",
    task    text COLLATE "C",
    subject text,
    reason  text,
    before  text,
    after   text
);
CREATE INDEX audit_by_time ON duly.audit (at);
CREATE INDEX audit_by_job ON duly.audit (job_id, id) WHERE job_id IS NOT NULL;
