package redistest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

var shared = testserver.Shared[server]{Name: "Redis", Absent: errNoRedis, Start: starter(nil)}

// Shared returns a server all tests of the package share: they use prefixes of
// their own, and leave settings and other keys alone. Main must be the
// package's TestMain, or With be part of it.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{server: shared.For(t)}
}

// SharedAddr is Shared for Example functions, which have no *testing.T.
func SharedAddr() (string, error) {
	s, err := shared.Get()
	if err != nil {
		return "", err
	}
	return s.Addr(), nil
}

// Main runs a package's tests, removes the shared server, fails if a goroutine
// is left and exits. Call it from TestMain.
func Main(m testserver.Runner, opts ...goleak.Option) { testserver.Main(With(m), opts...) }

// With returns what runs m and then removes the shared server, for a TestMain
// with several environments: pgtest.Main(redistest.With(m)).
func With(m testserver.Runner) testserver.Runner { return shared.With(m) }
