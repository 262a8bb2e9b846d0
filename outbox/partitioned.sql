-- The outbox table in partitions by time: old rows go by DROP TABLE, which costs
-- nothing and leaves nothing to vacuum. It is safe to run this again.
--
-- The publication must show the partitions as one table, and deletions, which tell
-- a row that moves to another partition from a new one. setup sees to both; by hand
-- it is:
--   CREATE PUBLICATION cdc_outbox FOR TABLE outbox
--       WITH (publish = 'insert, update, delete', publish_via_partition_root = true);
--
-- An id may be written twice, at different times: PostgreSQL wants created_at in
-- the key.
CREATE TABLE IF NOT EXISTS outbox (
    id            uuid         NOT NULL DEFAULT gen_random_uuid(),
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    payload       jsonb,
    headers       jsonb,
    created_at    timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

-- Takes what no other partition does, so that a partition that was not created
-- in time fails no business transaction. It should stay empty: while it holds
-- rows of a time, the partition for that time cannot be created, and it must go
-- before partitions can be detached with CONCURRENTLY.
CREATE TABLE IF NOT EXISTS outbox_default PARTITION OF outbox DEFAULT;
