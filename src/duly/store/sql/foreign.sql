-- name: lock_to_write [sqlite] Take the write lock before the first read: nobody can then write in between.
DELETE FROM duly.schema_version WHERE 0

-- name: schema_version What version the tables have.
SELECT max(version) FROM duly.schema_version

-- name: compatible_from Which version code must know at least to work on the tables.
SELECT max(COALESCE(compatible_from, version)) FROM duly.schema_version
