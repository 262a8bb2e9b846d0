// Package redistest gives tests a real Redis server.
//
// A package whose tests need one calls Main from its TestMain and Shared in the
// tests, which keep apart by prefixes of their own. A test that restarts the
// server, or needs other settings, starts one with Start.
//
// The server comes from a container where a Docker engine answers (see package
// container), or else from the programs on this machine, or from Debian's packages
// (see package redisserver). CDC_OUTBOX_REDIS_BIN chooses programs.
//
// Invariants:
//
//  1. No server outlives the test or, when shared, the package's tests.
//  2. A test is skipped, with the reason, only where there is no Redis to be had.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redisserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Option changes the server Start starts.
type Option func(*redisserver.Options)

// Setting sets a server setting (redis.conf). Without any, nothing is kept on
// disk: a restarted server is empty.
func Setting(name, value string) Option {
	return func(o *redisserver.Options) { o.Settings[name] = value }
}

// Server is a running Redis server. The methods fail the test they are given
// when they cannot do what they say.
type Server struct{ server server }

// server is what a local server and a container have in common.
type server interface {
	Addr() string
	Stop(ctx context.Context, sig syscall.Signal) error
	Resume(ctx context.Context) error
	Pause() error
	Continue() error
	Close() error
}

// Start starts a server removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return &Server{server: testserver.Start(t, "Redis", errNoRedis, starter(opts))}
}

// errNoRedis says that there is no way to get a server.
var errNoRedis = errors.New("no Redis to be had")

// StartBeside is Start for servers that find one another: a program of this
// machine, also where others are in containers. Clients of Sentinel and of a
// cluster go to the addresses the servers tell, which must be good on both
// sides.
func StartBeside(t testing.TB, opts ...Option) Beside {
	t.Helper()
	return Beside{&Server{server: testserver.Start(t, "Redis", errNoRedis, func(ctx context.Context) (server, error) {
		return start(ctx, opts, false)
	})}}
}

// Beside is a server others can find.
type Beside struct{ *Server }

func starter(opts []Option) func(ctx context.Context) (server, error) {
	return func(ctx context.Context) (server, error) {
		contained, err := container.Chosen(redisserver.BinEnv)
		if err != nil {
			return nil, err
		}
		return start(ctx, opts, contained)
	}
}

func start(ctx context.Context, opts []Option, contained bool) (server, error) {
	o := redisserver.Options{Settings: map[string]string{}}
	for _, opt := range opts {
		opt(&o)
	}
	return testserver.Begin(ctx, o, contained, startLocal, startContainer, tell)
}

func startLocal(ctx context.Context, o redisserver.Options) (server, error) {
	program, err := redisserver.Ensure(ctx, os.Stderr)
	switch {
	case err == nil:
		o.Program = program
		return redisserver.Start(ctx, o)
	case os.Getenv(redisserver.BinEnv) != "":
		return nil, err
	default:
		return nil, errors.Join(errNoRedis, err)
	}
}

// version is what a server calls itself in INFO, Valkey beside the release of Redis
// that it stands in for.
var version = regexp.MustCompile(`(?m)^(redis|valkey)_version:([0-9.]+)`)

var told sync.Map // the places of noted servers

// tell notes which server the tests have. A server asking for a password does
// not tell.
func tell(ctx context.Context, s server, contained bool) error {
	if _, again := told.Load(contained); again {
		return nil
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		if _, refused := errors.AsType[redis.Error](err); refused {
			return nil
		}
		return err
	}
	found := version.FindAllStringSubmatch(info, -1)
	if len(found) == 0 {
		return fmt.Errorf("no version in INFO: %s", info)
	}
	last := found[len(found)-1]
	told.Store(contained, true)
	testserver.Used(map[string]string{"redis": "Redis", "valkey": "Valkey"}[last[1]], last[2]+" ("+testserver.Where(contained)+")")
	return nil
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return s.server.Addr() }

// patience is how long clients wait for an answer: a command the client
// repeats, as it does after 3 s by default, may be carried out twice.
const patience = time.Minute

// Client returns a client of the server, closed when the test ends. It is
// patient with a machine standing still for a while. Options other than the
// address may be changed first.
func (s *Server) Client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{
		Addr: s.Addr(), DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
		ContextTimeoutEnabled: true,
	}
	for _, c := range change {
		c(o)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Stop stops the server in order: it writes to disk what the settings say.
func (s *Server) Stop(t testing.TB) { t.Helper(); s.stop(t, syscall.SIGTERM) }

// Kill stops the server as a crash does.
func (s *Server) Kill(t testing.TB) { t.Helper(); s.stop(t, syscall.SIGKILL) }

func (s *Server) stop(t testing.TB, sig syscall.Signal) {
	t.Helper()
	testserver.Do(t, "stop Redis", func(ctx context.Context) error { return s.server.Stop(ctx, sig) })
}

// Resume starts a stopped server again, at the same address, with what it has
// on disk.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	testserver.Do(t, "start Redis again", s.server.Resume)
}

// Restart is Stop and Resume.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.Resume(t)
}

// Pause stops the server's process as it stands; clients see silence.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	if err := s.server.Pause(); err != nil {
		t.Fatal(err)
	}
}

// Continue ends a Pause.
func (s *Server) Continue(t testing.TB) {
	t.Helper()
	if err := s.server.Continue(); err != nil {
		t.Fatal(err)
	}
}
