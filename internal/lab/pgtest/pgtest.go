// Package pgtest gives tests a real PostgreSQL server.
//
// A package with such tests calls Main from TestMain and Shared in the tests, each with
// a separate database from NewDatabase. A test restarting the server, or needing other
// settings, starts another server with Start.
//
// The server comes from a container where a Docker engine answers (see package
// container), or else from the binaries on this machine (see package pgserver).
// CDC_OUTBOX_PG_BIN chooses binaries.
//
// Invariants:
//
//  1. No test sees another's databases, and no server outlives the test or,
//     when shared, the package's tests.
//  2. Where there is no PostgreSQL to be had, a test fails: none is skipped.
package pgtest

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// opTimeout bounds each operation on a server, for slow and busy machines.
const opTimeout = 2 * time.Minute

// Mode is a way to stop the server.
type Mode = syscall.Signal

// The modes of Restart and Stop.
const (
	Fast      = pgserver.Fast      // disconnects clients, writes a checkpoint
	Immediate = pgserver.Immediate // as in a crash: recovery at the next start
)

// Option changes the server Start starts.
type Option func(*options)

type options struct {
	pgserver.Options
	network *container.Network // nil if the servers are local
	name    string             // in the network
}

// Setting sets a server setting (postgresql.conf). By default the server is ready for
// logical replication: wal_level=logical.
func Setting(name, value string) Option {
	return func(o *options) { o.Settings[name] = value }
}

// File puts a file into the data directory before the server starts: a
// certificate, a key, pg_hba.conf. Settings have the bare name of the file.
func File(name string, content []byte) Option {
	return func(o *options) { o.Files[name] = content }
}

// Own gives the server a system identifier and a password no other has.
func Own() Option { return func(o *options) { o.Own = true } }

// Server is a running PostgreSQL server. A failing method fails the given test.
type Server struct {
	server server
}

// server is the common interface of a local server and a container.
type server interface {
	URL(database string) string
	// Peer is the server's address for another server, of the same network if both are
	// in containers.
	Peer() (host, port string)
	Stop(ctx context.Context, mode Mode) error
	Resume(ctx context.Context) error
	Close() error

	// Of a stopped server: Save makes a copy of the files at path, Restore puts the copy
	// in their place, and Before has a shell script run in the data directory, as the
	// server's user, before the next start.
	Save(ctx context.Context, path string) error
	Restore(ctx context.Context, path string) error
	Before(ctx context.Context, script string) error
	// Has tells whether the script finds the program of PostgreSQL.
	Has(program string) bool
}

// Start starts a server removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return &Server{server: testserver.Start(t, "PostgreSQL", nil, starter(opts))}
}

func starter(opts []Option) func(ctx context.Context) (server, error) {
	return func(ctx context.Context) (server, error) {
		o := options{Options: pgserver.Options{Settings: map[string]string{}, Files: map[string][]byte{}}}
		for _, opt := range opts {
			opt(&o)
		}
		contained, err := container.Chosen(pgserver.BinEnv)
		if err != nil {
			return nil, err
		}
		return testserver.Begin(ctx, o, contained, startLocal, startContainer, tell)
	}
}

// told is set once the output has the version of this process's servers.
var told atomic.Bool

// tell notes the tests' kind of server, by the server's own name.
func tell(ctx context.Context, s server, contained bool) error {
	if told.Swap(true) {
		return nil
	}
	conn, err := pgconn.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	version, _, _ := strings.Cut(conn.ParameterStatus("server_version"), " ") // 15.18 (Debian 15.18-0+deb12u1)
	testserver.Used("PostgreSQL", version+" ("+testserver.Where(contained)+")")
	return conn.Close(ctx)
}

// URL returns the connection URL of a database, as superuser and over TCP.
func (s *Server) URL(database string) string { return s.server.URL(database) }

// Stop stops the server and waits for the end.
func (s *Server) Stop(t testing.TB, mode Mode) {
	t.Helper()
	testserver.Do(t, "stop PostgreSQL", func(ctx context.Context) error { return s.server.Stop(ctx, mode) })
}

// Resume starts a stopped server again, under the same URL.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	testserver.Do(t, "start PostgreSQL again", s.server.Resume)
}

// Restart stops the server in the given mode, and starts the server again.
func (s *Server) Restart(t testing.TB, mode Mode) {
	t.Helper()
	s.Stop(t, mode)
	s.Resume(t)
}
