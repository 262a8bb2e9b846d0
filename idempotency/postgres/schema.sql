-- The table of package idempotency/postgres. One row for each key that was
-- claimed and is not forgotten yet.
--
-- No index beside the primary key: every change of a row then is a HOT update,
-- which writes no index entry and whose old version the next visitor of the page
-- removes. Free space in each page (fillfactor) is what HOT updates live on.
-- No check either: the server parses a check anew in each statement that writes.
CREATE TABLE IF NOT EXISTS idempotency_keys (
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
    PRIMARY KEY (scope, id)
) WITH (
    fillfactor = 75,
    -- Sweeps leave pages full of dead rows: have them vacuumed after the first
    -- thousands, not after a fifth of the table.
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05
);
