-- The events that were applied, for guard.Applied. Rows are inserted and, after
-- the retention, deleted, nothing else; the index by time, a BRIN, takes next to
-- no room and time.
CREATE TABLE IF NOT EXISTS applied_events (
    scope      text COLLATE "C" NOT NULL,
    event_id   text COLLATE "C" NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, event_id)
) WITH (
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02
);
CREATE INDEX IF NOT EXISTS applied_events_applied_at ON applied_events USING brin (applied_at) WITH (pages_per_range = 16);
