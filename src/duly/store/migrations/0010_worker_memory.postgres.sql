-- duly 0010: how much memory a worker's process had resident when it last said that it lives, in bytes.

ALTER TABLE duly.workers ADD COLUMN memory_bytes bigint;
