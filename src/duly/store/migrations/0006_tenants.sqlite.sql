-- duly 0006: what one tenant has is found by index. Partial: jobs of nobody in particular cost nothing here.

CREATE INDEX duly_jobs_by_tenant ON duly_jobs (tenant, id) WHERE tenant <> '';
CREATE INDEX duly_scheduled_by_tenant ON duly_scheduled (tenant, id) WHERE tenant <> '';
CREATE INDEX duly_parked_by_tenant ON duly_parked (tenant, id) WHERE tenant <> '';
CREATE INDEX duly_audit_by_tenant ON duly_audit (tenant, id) WHERE tenant <> '';
