package pgtest

import (
	"context"
	"os"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Since has the server be of a major version or later: where the usual server is older,
// binaries are downloaded. The test is skipped where CDC_OUTBOX_PG_BIN names older ones.
func Since(t testing.TB, major int) (choose Option) {
	t.Helper()
	choose = func(*options) {}
	if contained, err := container.Chosen(pgserver.BinEnv); err != nil || contained { // the image is recent
		return choose
	}
	testserver.DoStart(t, "find PostgreSQL", func(ctx context.Context) error {
		bin, err := pgserver.Ensure(ctx, os.Stderr)
		if err != nil {
			return err
		}
		version, err := pgserver.Version(bin)
		if err != nil || version >= major {
			return err
		}
		if os.Getenv(pgserver.BinEnv) != "" {
			t.Skipf("needs PostgreSQL %d or later, and %s names one of %d", major, pgserver.BinEnv, version)
		}
		bin, err = pgserver.Download(ctx, major, os.Stderr)
		choose = func(o *options) { o.BinDir = bin }
		return err
	})
	return choose
}
