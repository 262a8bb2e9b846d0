-- The table of package idempotency/postgres, divided for retention.
--
-- A unique key over (scope, id) cannot be had across partitions by time, unless
-- the time is a function of the id. That of a UUIDv7, as package outbox makes
-- them, is in its first 48 bits: its day, modulo 32, is the slot. So all copies
-- of a message meet in one partition, and a partition whose rows have all
-- expired is truncated. Other ids share the partition "other", whose expired
-- rows are deleted in batches.
--
-- The check makes a client that computes another slot fail, rather than let a
-- key exist twice.
CREATE TABLE IF NOT EXISTS idempotency_keys (
    slot          smallint NOT NULL CHECK (slot = CASE
        WHEN id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$'
        THEN ('x' || substr(id, 1, 8) || substr(id, 10, 4))::bit(48)::bigint / 86400000 % 32
        ELSE -1 END),
    scope         text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    state         text COLLATE "C" NOT NULL, -- processing, completed, retryable or failed
    fingerprint   text COLLATE "C" NOT NULL,
    owner         text COLLATE "C" NOT NULL,
    fence         bigint NOT NULL,
    attempts      integer NOT NULL,
    vanished      integer NOT NULL DEFAULT 0, -- attempts that ended without an outcome
    excused       integer NOT NULL DEFAULT 0, -- attempts that failed through no fault of the message
    reason        text NOT NULL,
    result        bytea,
    blocked_until timestamptz, -- the lease's end while processing, the next attempt's time while retryable
    updated_at    timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL, -- from then on the row counts as absent
    PRIMARY KEY (scope, id, slot)
) PARTITION BY LIST (slot);

CREATE TABLE IF NOT EXISTS idempotency_keys_other PARTITION OF idempotency_keys FOR VALUES IN (-1)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_00 PARTITION OF idempotency_keys FOR VALUES IN (0)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_01 PARTITION OF idempotency_keys FOR VALUES IN (1)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_02 PARTITION OF idempotency_keys FOR VALUES IN (2)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_03 PARTITION OF idempotency_keys FOR VALUES IN (3)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_04 PARTITION OF idempotency_keys FOR VALUES IN (4)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_05 PARTITION OF idempotency_keys FOR VALUES IN (5)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_06 PARTITION OF idempotency_keys FOR VALUES IN (6)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_07 PARTITION OF idempotency_keys FOR VALUES IN (7)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_08 PARTITION OF idempotency_keys FOR VALUES IN (8)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_09 PARTITION OF idempotency_keys FOR VALUES IN (9)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_10 PARTITION OF idempotency_keys FOR VALUES IN (10)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_11 PARTITION OF idempotency_keys FOR VALUES IN (11)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_12 PARTITION OF idempotency_keys FOR VALUES IN (12)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_13 PARTITION OF idempotency_keys FOR VALUES IN (13)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_14 PARTITION OF idempotency_keys FOR VALUES IN (14)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_15 PARTITION OF idempotency_keys FOR VALUES IN (15)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_16 PARTITION OF idempotency_keys FOR VALUES IN (16)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_17 PARTITION OF idempotency_keys FOR VALUES IN (17)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_18 PARTITION OF idempotency_keys FOR VALUES IN (18)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_19 PARTITION OF idempotency_keys FOR VALUES IN (19)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_20 PARTITION OF idempotency_keys FOR VALUES IN (20)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_21 PARTITION OF idempotency_keys FOR VALUES IN (21)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_22 PARTITION OF idempotency_keys FOR VALUES IN (22)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_23 PARTITION OF idempotency_keys FOR VALUES IN (23)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_24 PARTITION OF idempotency_keys FOR VALUES IN (24)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_25 PARTITION OF idempotency_keys FOR VALUES IN (25)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_26 PARTITION OF idempotency_keys FOR VALUES IN (26)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_27 PARTITION OF idempotency_keys FOR VALUES IN (27)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_28 PARTITION OF idempotency_keys FOR VALUES IN (28)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_29 PARTITION OF idempotency_keys FOR VALUES IN (29)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_30 PARTITION OF idempotency_keys FOR VALUES IN (30)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE IF NOT EXISTS idempotency_keys_31 PARTITION OF idempotency_keys FOR VALUES IN (31)
    WITH (fillfactor = 75, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
