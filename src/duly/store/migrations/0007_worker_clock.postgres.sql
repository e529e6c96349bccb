-- duly 0007: what else workers say of themselves. How far their host's clock is ahead of the database's, in microseconds, and how
-- closely that could be seen; how their slots are divided, as JSON.

ALTER TABLE duly.workers
    ADD COLUMN clock_ahead_us bigint,
    ADD COLUMN clock_doubt_us bigint,
    ADD COLUMN capacity       text;
