package pgtest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Files is a copy of a server's files. The copy goes with the test.
type Files struct{ path string }

// Files copies the files of the stopped server.
func (s *Server) Files(t testing.TB) Files {
	t.Helper()
	f := Files{filepath.Join(t.TempDir(), "data")}
	testserver.Do(t, "copy PostgreSQL's files", func(ctx context.Context) error { return s.server.Save(ctx, f.path) })
	return f
}

// Become has the copy in the place of the stopped server's own files.
func (s *Server) Become(t testing.TB, f Files) {
	t.Helper()
	testserver.Do(t, "replace PostgreSQL's files", func(ctx context.Context) error { return s.server.Restore(ctx, f.path) })
}

// StandBy has the stopped server begin as a standby.
func (s *Server) StandBy(t testing.TB) {
	t.Helper()
	s.BeforeStart(t, "touch standby.signal")
}

// BeforeStart has a shell script run in the data directory of the stopped server,
// with the server's user and programs, before the next start.
func (s *Server) BeforeStart(t testing.TB, script string) {
	t.Helper()
	testserver.Do(t, script, func(ctx context.Context) error { return s.server.Before(ctx, script) })
}

// Has tells whether BeforeStart's script finds one of PostgreSQL's programs.
func (s *Server) Has(program string) bool { return s.server.Has(program) }

// Shell has the running server run a shell command in the data directory.
func (s *Server) Shell(t testing.TB, command string) {
	t.Helper()
	s.Exec(t, `COPY (SELECT WHERE false) TO PROGRAM `+pgsql.Literal(command))
}
