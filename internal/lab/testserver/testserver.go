// Package testserver is what the packages giving tests a real server have in
// common (pgtest, redistest, dynamotest, kafkatest).
package testserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
)

// Limits of waiting, for slow and busy machines.
const (
	timeout      = 2 * time.Minute
	startTimeout = 5 * time.Minute // the first time a server may be downloaded
)

// Do does something to a server, in time or the test fails.
func Do(t testing.TB, what string, do func(ctx context.Context) error) {
	t.Helper()
	within(t, timeout, what, do)
}

// DoStart is Do for what takes as long as the start of servers.
func DoStart(t testing.TB, what string, do func(ctx context.Context) error) {
	t.Helper()
	within(t, startTimeout, what, do)
}

func within(t testing.TB, limit time.Duration, what string, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := do(ctx); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Runner runs tests: a *testing.M, or what prepares something for one.
type Runner interface{ Run() int }

// Server is a server that Close removes.
type Server interface{ Close() error }

// Start starts a server removed when the test ends. The test fails if that does
// not work, or is skipped if the error is absent, which may be nil.
func Start[S Server](t testing.TB, name string, absent error, start func(ctx context.Context) (S, error)) S {
	t.Helper()
	s, err := limited(start)
	check(t, name, absent, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	})
	return s
}

func limited[S Server](start func(ctx context.Context) (S, error)) (S, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return start(ctx)
}

func check(t testing.TB, name string, absent, err error) {
	t.Helper()
	switch {
	case absent != nil && errors.Is(err, absent):
		Absent(t, name, err)
	case err != nil:
		t.Fatalf("start %s: %v", name, err)
	}
}

// Absent skips the test for want of a server.
func Absent(t testing.TB, name string, reason error) {
	t.Helper()
	first, _, _ := strings.Cut(reason.Error(), "\n")
	Used(name, "none: "+first)
	t.Skip(reason)
}

// Shared is a server the tests of a package share, started by the first that
// asks. The methods may be called concurrently, except With's Runner.
type Shared[S Server] struct {
	// Name is the server's, for errors.
	Name string
	// Absent is Start's error where the server is not available: For skips the
	// test then. Optional.
	Absent error
	// Start starts it.
	Start func(ctx context.Context) (S, error)

	once   sync.Once
	server S
	err    error
	asked  bool
}

// Get returns the server, or why there is none.
func (s *Shared[S]) Get() (S, error) {
	s.once.Do(func() {
		s.asked = true
		s.server, s.err = limited(s.Start)
	})
	return s.server, s.err
}

// For returns the server, or ends the test.
func (s *Shared[S]) For(t testing.TB) S {
	t.Helper()
	server, err := s.Get()
	check(t, s.Name, s.Absent, err)
	return server
}

// With returns what runs m and then removes the server.
func (s *Shared[S]) With(m Runner) Runner { return runner{m, s.remove} }

func (s *Shared[S]) remove() error {
	if !s.asked || s.err != nil {
		return nil
	}
	if err := s.server.Close(); err != nil {
		return fmt.Errorf("remove %s: %w", s.Name, err)
	}
	return nil
}

// runner runs what is after the inner one.
type runner struct {
	inner Runner
	after func() error
}

// Run implements Runner.
func (r runner) Run() int {
	code := r.inner.Run()
	if err := r.after(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Waiting returns what runs m with more tests at a time than processors: for a
// package whose parallel tests wait for time to pass, and do little else.
func Waiting(m Runner) Runner { return waiting{m} }

type waiting struct{ Runner }

// Run implements Runner.
func (w waiting) Run() int {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return w.Runner.Run()
}

// Main runs a package's tests, fails if a goroutine is left and exits.
func Main(m Runner, opts ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := findLeak(append(opts, container.Goroutines()...)...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// leakPatience is how long goroutines may take to end: pgconn closes a
// connection whose query was interrupted in the background, for up to 15
// seconds (PgConn.asyncClose), while goleak looks again for half a second only.
const leakPatience = 30 * time.Second

// findLeak is goleak.Find with more patience.
func findLeak(opts ...goleak.Option) error {
	for began := time.Now(); ; {
		if err := goleak.Find(opts...); err == nil || time.Since(began) > leakPatience {
			return err
		}
	}
}
