package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// superuser is the name of the server's only role.
const superuser = "postgres"

// attemptTimeout bounds a look at the server: another process may listen there and
// never answer.
const attemptTimeout = time.Second

// Options describes the server to start. The zero value is valid.
type Options struct {
	// BinDir holds initdb and postgres. Empty means Find's.
	BinDir string
	// Durable makes the server call fsync, like a real server. Otherwise the data
	// survives a crash of the server but not of the machine, and is in memory where
	// there is room (Linux, TMPDIR not set). Unless Own is set, the data directory is
	// a copy of initdb's for all: all copies have the same system identifier and
	// password.
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

// AllSettings returns Settings with the other options' settings.
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

// The signals that stop the server (PostgreSQL documentation, "Shutting Down the
// Server"), named as in pg_ctl's option -m.
const (
	Fast      = syscall.SIGINT  // disconnects clients, writes a checkpoint
	Immediate = syscall.SIGQUIT // as in a crash: recovery at the next start
)

// Server is a PostgreSQL server. The methods must not be called concurrently,
// except URL and SocketURL.
type Server struct {
	*child.Server
	opts     Options
	dir      *directory
	runAs    account
	password string
}

// Start initialises a server in a new directory, starts the server and waits until
// connections are accepted. The caller must Close the server. ctx bounds the start
// only.
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
	s.Server = &child.Server{
		Name: filepath.Join(opts.BinDir, "postgres"), Command: s.command, Log: dir.log(),
		PortTaken: "could not create any TCP/IP sockets",
		Answers:   s.attempt, // connections are refused during start and recovery
		AtOnce:    Immediate, // as a killed postmaster's processes live on
	}
	if err = s.initialise(ctx); err == nil {
		err = s.Server.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// URL returns the connection URL of a database over TCP.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword(superuser, s.password),
		Host:   s.Addr(),
		Path:   "/" + database,
	}
	return u.String()
}

// SocketURL returns the connection URL of a database over the Unix socket, open to the
// server's user and root only.
func (s *Server) SocketURL(database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword(superuser, s.password),
		Path:   "/" + database,
		RawQuery: url.Values{
			"host": {s.dir.path}, "port": {strconv.Itoa(s.Port)},
		}.Encode(),
	}
	return u.String()
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

// Close stops the server without ceremony and removes the directory. Close may
// be called more than once.
func (s *Server) Close() error { return errors.Join(s.Server.Close(), s.dir.remove()) }

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
func initdb(ctx context.Context, binDir string, runAs account, data, password string, more ...string) error {
	secret, err := verifier(password)
	if err != nil {
		return err
	}
	pwfile := data + ".secret"
	defer func() { _ = os.Remove(pwfile) }()
	if err := runAs.write(pwfile, []byte(secret)); err != nil {
		return err
	}
	args := append([]string{"--pgdata", data, "--username", superuser, "--pwfile", pwfile,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"}, more...)
	cmd := runAs.command(ctx, filepath.Dir(data), filepath.Join(binDir, "initdb"), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", cmd.Path, err, child.LastLines(string(out)))
	}
	return nil
}

// arguments returns the server's settings as the command line takes them.
func (s *Server) arguments() []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.Port),
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

func (s *Server) command() (*exec.Cmd, error) {
	args := append([]string{"-D", s.dir.data()}, s.arguments()...)
	// A relative hba_file is relative to the server's working directory, unlike
	// ssl_cert_file: start in the data directory.
	return s.runAs.command(context.Background(), s.dir.data(), filepath.Join(s.opts.BinDir, "postgres"), args...), nil
}

// attempt connects to the server.
func (s *Server) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, s.URL(superuser)+"?sslmode=disable")
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
