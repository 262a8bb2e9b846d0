package redistest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
)

// shared is the server of Shared, started by the first test that asks.
var shared struct {
	once   sync.Once
	server server
	err    error
}

// Shared returns a server that all tests of the package share: they use
// prefixes of their own, and leave settings and other keys alone. Main must be
// the package's TestMain, or With be part of it.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = start() })
	if shared.err != nil {
		giveUp(t, shared.err)
	}
	return &Server{server: shared.server}
}

// Main runs a package's tests, removes the shared server, fails if a goroutine
// is left and exits. Call it from TestMain.
func Main(m interface{ Run() int }, opts ...goleak.Option) {
	code := With(m).Run()
	if err := goleak.Find(append(opts, container.Goroutines()...)...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		code = 1
	}
	os.Exit(code)
}

// With returns what runs m and then removes the shared server, for a TestMain
// with several environments: pgtest.Main(redistest.With(m)).
func With(m interface{ Run() int }) interface{ Run() int } { return runner{m} }

type runner struct{ inner interface{ Run() int } }

// Run implements what Main and pgtest.Main ask for.
func (r runner) Run() int {
	code := r.inner.Run()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "remove Redis:", err)
			code = 1
		}
	}
	return code
}

// SharedAddr is Shared for Example functions, which have no *testing.T.
func SharedAddr() (string, error) {
	shared.once.Do(func() { shared.server, shared.err = start() })
	if shared.err != nil {
		return "", errors.Join(errNoRedis, shared.err)
	}
	return shared.server.Addr(), nil
}
