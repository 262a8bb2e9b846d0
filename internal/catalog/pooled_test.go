package catalog

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// TestEnvironmentLastsForATransaction has a database with other settings.
func TestEnvironmentLastsForATransaction(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET bytea_output = escape', current_database());
		EXECUTE format('ALTER DATABASE %I SET datestyle = German', current_database());
		EXECUTE format('ALTER DATABASE %I SET timezone = "Asia/Kolkata"', current_database()); END $$`)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn := must.Get(ConnectPooled(ctx, url))(t)
	defer conn.Close(ctx)
	const query = `SELECT '\x41'::bytea, timestamptz '2026-08-01 00:00:00+00'`
	for _, tt := range []struct{ sql, bytes, at string }{
		{query, "A", "01.08.2026 05:30:00 IST"},
		{"BEGIN; " + Environment + "; " + query + "; COMMIT", `\x41`, "2026-08-01 00:00:00+00"},
		{query, "A", "01.08.2026 05:30:00 IST"},
	} {
		results := must.Get(conn.PgConn().Exec(ctx, tt.sql).ReadAll())(t)
		for _, r := range results {
			if len(r.Rows) == 1 && len(r.Rows[0]) == 2 && (string(r.Rows[0][0]) != tt.bytes || string(r.Rows[0][1]) != tt.at) {
				t.Errorf("%s: %s", tt.sql, r.Rows[0])
			}
		}
	}
}
