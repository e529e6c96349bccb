-- duly 0006: what one tenant has is found by index. Partial: jobs of nobody in particular cost nothing here.

CREATE INDEX jobs_by_tenant ON duly.jobs (tenant, id) WHERE tenant <> '';
CREATE INDEX scheduled_by_tenant ON duly.scheduled (tenant, id) WHERE tenant <> '';
CREATE INDEX parked_by_tenant ON duly.parked (tenant, id) WHERE tenant <> '';
CREATE INDEX audit_by_tenant ON duly.audit (tenant, id) WHERE tenant <> '';
