package pgtest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

var shared = testserver.Shared[server]{Name: "PostgreSQL", Start: starter(nil)}

// Shared returns a server all tests of the package share, with wal_level=logical. Main
// must be the package's TestMain.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{server: shared.For(t)}
}

// Main runs a package's tests, m being TestMain's or a wrapper with preparations,
// removes the shared server, fails if a goroutine is left and exits. Call Main from
// TestMain.
func Main(m testserver.Runner, opts ...goleak.Option) { testserver.Main(shared.With(m), opts...) }
