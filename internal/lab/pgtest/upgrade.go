package pgtest

import (
	"context"
	"os"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Complete has the server be of the major version, with all programs. The test is
// skipped where they cannot be had, or servers are in containers.
func Complete(t testing.TB, major int) Option {
	t.Helper()
	bin := completeBin(t, major)
	return func(o *options) { o.BinDir = bin }
}

func completeBin(t testing.TB, major int) (bin string) {
	t.Helper()
	if contained, err := container.Chosen(pgserver.BinEnv); err != nil || contained {
		t.Skipf("needs programs of PostgreSQL %d on this machine, and servers are in containers (%v)", major, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	bin, err := pgserver.Complete(ctx, major, os.Stderr)
	if err != nil {
		t.Skipf("needs all programs of PostgreSQL %d: %v", major, err)
	}
	return bin
}

// Upgrade stops the server and runs pg_upgrade to the major version. It starts the
// server again, under the same URL, also after an error of pg_upgrade, as it was.
func (s *Server) Upgrade(t testing.TB, major int) error {
	t.Helper()
	l, ok := s.server.(local)
	if !ok {
		t.Fatal("a server in a container cannot be upgraded")
	}
	bin := completeBin(t, major)
	s.Stop(t, Fast)
	var err error
	testserver.Do(t, "upgrade PostgreSQL", func(ctx context.Context) error {
		err = l.Server.Upgrade(ctx, bin)
		return nil
	})
	s.Resume(t)
	return err
}
