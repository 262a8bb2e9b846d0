package pgtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// DataDirectory is where the server's files are. The test is skipped where they are
// not on this machine.
func (s *Server) DataDirectory(t testing.TB) (dir string) {
	t.Helper()
	s.ask(t, "SHOW data_directory", &dir)
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the server's files are not on this machine")
	}
	return dir
}

// ask asks the database postgres for one value.
func (s *Server) ask(t testing.TB, query string, to any) {
	t.Helper()
	connected(t, s.URL("postgres"), func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, query).Scan(to)
	})
}

// CopyFiles has a copy of a stopped server's files in the place of others, if there
// are any.
func CopyFiles(t testing.TB, from, to string) {
	t.Helper()
	run(t, "rm", "-rf", to)
	run(t, "cp", "-a", from, to)
}

// StandBy has the server of these files begin as a standby.
func StandBy(t testing.TB, dir string) {
	t.Helper()
	run(t, "cp", "-a", filepath.Join(dir, "PG_VERSION"), filepath.Join(dir, "standby.signal")) // with its owner
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
