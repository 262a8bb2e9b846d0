package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
)

// shared is the server of Shared, started by the first test that asks.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns a server that all tests of the package share. It has
// wal_level=logical. Main must be the package's TestMain.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := startShared()
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	return s
}

func startShared() (*Server, error) {
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		defer cancel()
		var s server
		if s, shared.err = start(ctx); shared.err == nil {
			shared.server = &Server{server: s}
		}
	})
	return shared.server, shared.err
}

// Main runs a package's tests, m being TestMain's or a wrapper that prepares
// something for it, removes the shared server, fails if a goroutine is left and
// exits. Call it from TestMain.
func Main(m interface{ Run() int }, opts ...goleak.Option) {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "remove PostgreSQL:", err)
			code = 1
		}
	}
	if code == 0 {
		if err := findLeak(append(opts, container.Goroutines()...)...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// leakPatience is how long goroutines may take to end: pgconn closes a
// connection whose query was interrupted in the background, for up to 15 seconds
// (PgConn.asyncClose), while goleak looks again for half a second only.
const leakPatience = 30 * time.Second

// findLeak is goleak.Find with more patience.
func findLeak(opts ...goleak.Option) error {
	for began := time.Now(); ; {
		if err := goleak.Find(opts...); err == nil || time.Since(began) > leakPatience {
			return err
		}
	}
}
