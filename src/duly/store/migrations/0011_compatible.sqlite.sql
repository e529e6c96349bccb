-- duly 0011: the tables say how old code may be that works on them (NULL: it must know this very version), and workers which
-- version of the tables they know.

ALTER TABLE duly_schema_version ADD COLUMN compatible_from integer;
ALTER TABLE duly_workers ADD COLUMN knows integer;
