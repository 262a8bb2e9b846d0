package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// superuser is the name of the server's only role.
const superuser = "postgres"

// Limits of waiting for the server, for slow and busy machines.
const (
	startTimeout   = 60 * time.Second
	attemptTimeout = time.Second
	portAttempts   = 10
)

// Options says what server to start. The zero value is valid.
type Options struct {
	// BinDir holds initdb and postgres. Empty means what Find returns.
	BinDir string
	// Durable makes the server call fsync, as a real one does. Without it
	// the data survives a crash of the server but not of the machine; it is in
	// memory where there is room (Linux, TMPDIR not set). The data directory is a
	// copy of one that initdb made for all, unless Own is set: all copies have the
	// same system identifier and password.
	Durable bool
	Own     bool
	// Settings are server settings (postgresql.conf), on top of
	// wal_level=logical and room for twenty replication connections.
	Settings map[string]string
	// Files are written into the data directory before the first start,
	// readable by the server only: certificates, pg_hba.conf. A setting names
	// them by their bare name.
	Files map[string][]byte
}

// AllSettings returns Settings and those that the other options stand for.
func (o Options) AllSettings() map[string]string {
	all := map[string]string{
		"wal_level":             "logical",
		"max_wal_senders":       "20",
		"max_replication_slots": "20",
	}
	if !o.Durable {
		all["fsync"] = "off"
		all["full_page_writes"] = "off"
	}
	maps.Copy(all, o.Settings)
	return all
}

// StopMode is a way to stop the server, as in pg_ctl's option -m.
type StopMode uint8

// The stop modes.
const (
	Fast      StopMode = iota // disconnects clients, writes a checkpoint
	Immediate                 // as in a crash: recovery at the next start
)

// Signal is the one that stops the server in the mode (PostgreSQL
// documentation, "Shutting Down the Server").
func (m StopMode) Signal() syscall.Signal {
	if m == Immediate {
		return syscall.SIGQUIT
	}
	return syscall.SIGINT
}

// Server is a PostgreSQL server. Its methods must not be called concurrently,
// except URL and SocketURL.
type Server struct {
	opts       Options
	dir        *directory
	runAs      account
	port       int
	password   string
	postmaster *child.Process // nil while stopped
}

// Start initialises a server in a new directory, starts it and waits until it
// accepts connections. The caller must Close it. ctx bounds the start only.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.BinDir == "" {
		dir, err := Find()
		if err != nil {
			return nil, err
		}
		opts.BinDir = dir
	}
	runAs, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory(runAs, opts.Durable)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, dir: dir, runAs: runAs}
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// create makes the data directory and starts the server on a free port. Somebody
// who does not ask package freeport may take it a moment later, hence the
// attempts.
func (s *Server) create(ctx context.Context) error {
	if err := s.initialise(ctx); err != nil {
		return err
	}
	var err error
	for range portAttempts {
		if s.port, err = freeport.Take(); err != nil {
			return err
		}
		if err = s.Resume(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// URL returns the connection URL of a database over TCP.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword(superuser, s.password),
		Host:   net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:   "/" + database,
	}
	return u.String()
}

// SocketURL returns the connection URL of a database over the Unix socket,
// which only the server's user and root can reach.
func (s *Server) SocketURL(database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword(superuser, s.password),
		Path:   "/" + database,
		RawQuery: url.Values{
			"host": {s.dir.path}, "port": {strconv.Itoa(s.port)},
		}.Encode(),
	}
	return u.String()
}

// Stop stops the server and waits until it is gone; the data stays. Stopping a
// stopped server does nothing. When ctx ends first the server may still be
// about to stop.
func (s *Server) Stop(ctx context.Context, mode StopMode) error {
	if s.postmaster == nil {
		return nil
	}
	if err := s.postmaster.Stop(ctx, mode.Signal()); err != nil {
		return fmt.Errorf("stop postgres: %w", err)
	}
	s.postmaster = nil
	return nil
}

// Resume starts a stopped server again, on the same port, and waits until it
// accepts connections.
func (s *Server) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	logged, err := s.dir.logSize()
	if err != nil {
		return err
	}
	p, err := s.spawn()
	if err != nil {
		return err
	}
	// It refuses connections while it starts or recovers.
	if err := await.Ready(ctx, p.Exited(), s.attempt); err != nil {
		// Immediate, as nothing that a failed start wrote is worth a checkpoint.
		stopErr := p.Stop(context.WithoutCancel(ctx), Immediate.Signal())
		return errors.Join(s.explain(err, logged), stopErr)
	}
	s.postmaster = p
	return nil
}

// Data is the data directory.
func (s *Server) Data() string { return s.dir.data() }

// Shell runs a shell script in the data directory, as the server's user, with the
// server's programs in PATH.
func (s *Server) Shell(ctx context.Context, script string) error {
	cmd := s.runAs.command(ctx, s.dir.data(), "/bin/sh", "-euc", script)
	cmd.Env = append(cmd.Env, "PATH="+s.opts.BinDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, child.LastLines(string(out)))
	}
	return nil
}

// Restart stops the server in the given mode and starts it again.
func (s *Server) Restart(ctx context.Context, mode StopMode) error {
	if err := s.Stop(ctx, mode); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Close stops the server without ceremony and removes its directory. It may be
// called more than once.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return errors.Join(s.Stop(ctx, Immediate), s.dir.remove())
}

// initialise makes the data directory: of a durable server with initdb, of
// another as a copy.
func (s *Server) initialise(ctx context.Context) error {
	if err := s.fillData(ctx); err != nil {
		return err
	}
	for name, content := range s.opts.Files {
		if err := s.runAs.write(filepath.Join(s.dir.data(), name), content); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) fillData(ctx context.Context) error {
	if !s.opts.Durable && !s.opts.Own {
		t, err := openTemplate(ctx, s.opts.BinDir, s.runAs)
		if err != nil {
			return err
		}
		s.password = t.password
		return t.copyTo(ctx, s.runAs, s.dir.data())
	}
	s.password = rand.Text()
	return initdb(ctx, s.opts.BinDir, s.runAs, s.dir.data(), s.password)
}

// initdb creates a data directory with UTF8 and password authentication.
func initdb(ctx context.Context, binDir string, runAs account, data, password string) error {
	secret, err := verifier(password)
	if err != nil {
		return err
	}
	pwfile := data + ".secret"
	defer func() { _ = os.Remove(pwfile) }()
	if err := runAs.write(pwfile, []byte(secret)); err != nil {
		return err
	}
	cmd := runAs.command(ctx, filepath.Dir(data), filepath.Join(binDir, "initdb"),
		"--pgdata", data, "--username", superuser, "--pwfile", pwfile,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", cmd.Path, err, child.LastLines(string(out)))
	}
	return nil
}

// arguments returns the server's settings as its command line takes them.
func (s *Server) arguments() []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": s.dir.path,
		"unix_socket_permissions": "0700",
	}
	maps.Copy(all, s.opts.AllSettings())
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}

func (s *Server) spawn() (*child.Process, error) {
	log, err := s.dir.openLog()
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	args := append([]string{"-D", s.dir.data()}, s.arguments()...)
	// A relative hba_file is relative to where the server starts, unlike
	// ssl_cert_file: start it in the data directory.
	cmd := s.runAs.command(context.Background(), s.dir.data(), filepath.Join(s.opts.BinDir, "postgres"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	return child.Start(cmd)
}

// attempt connects to the server. Its time is short: somebody else's server may
// have our port and never answer.
func (s *Server) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, s.URL(superuser)+"?sslmode=disable")
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// errPortTaken marks a start that failed because another process has the port.
var errPortTaken = errors.New("port is taken")

// explain adds what the server logged since logged to the error of a start.
func (s *Server) explain(err error, logged int64) error {
	text := s.dir.logSince(logged)
	if strings.Contains(text, "could not create any TCP/IP sockets") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return fmt.Errorf("start %s: %w: %s", filepath.Join(s.opts.BinDir, "postgres"), err, child.LastLines(text))
}
