package redisserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// Options says what server to start. The zero value is valid.
type Options struct {
	// Program is the server's. Empty means what Find returns.
	Program string
	// Settings are the server's (redis.conf), by name. Unless they say
	// otherwise the server keeps nothing on disk.
	Settings map[string]string
	// Sentinel makes the server a Sentinel with these directives (sentinel.conf,
	// without the word sentinel).
	Sentinel []string
}

// AllSettings returns Settings and those the server has anyway.
func (o Options) AllSettings() map[string]string {
	all := map[string]string{"save": "", "appendonly": "no"}
	maps.Copy(all, o.Settings)
	return all
}

// Server is a Redis server. The methods must not be called concurrently, except
// Addr and Socket.
type Server struct {
	*child.Server
	opts Options
	dir  string // data, socket, log
}

// Start starts a server with an empty directory of its own and waits until it
// answers. The caller must Close it. ctx bounds the start only.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Program == "" {
		program, err := Find()
		if err != nil {
			return nil, err
		}
		opts.Program = program
	}
	dir, err := os.MkdirTemp("", "cdc-outbox-redis-*")
	if err != nil {
		return nil, fmt.Errorf("create a directory for Redis: %w", err)
	}
	s := &Server{opts: opts, dir: dir}
	s.Server = &child.Server{
		Name: opts.Program, Command: s.command, Log: filepath.Join(dir, "log"), PortTaken: "Address already in use",
		Answers: func(ctx context.Context) error { return ping(ctx, s.Socket()) }, // and has read the files on disk
	}
	if err := s.Server.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Socket returns the path of the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "s") }

// Close kills the server and removes the directory. Close may be called more
// than once.
func (s *Server) Close() error { return errors.Join(s.Server.Close(), os.RemoveAll(s.dir)) }

func (s *Server) command() (*exec.Cmd, error) {
	all := map[string]string{
		"bind": "127.0.0.1", "port": strconv.Itoa(s.Port),
		"unixsocket": s.Socket(), "dir": s.dir, "daemonize": "no",
	}
	maps.Copy(all, s.opts.AllSettings())
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "--"+name, all[name])
	}
	if len(s.opts.Sentinel) > 0 {
		file := filepath.Join(s.dir, "sentinel.conf") // it writes there what it finds out
		text := "sentinel " + strings.Join(s.opts.Sentinel, "\nsentinel ") + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("configure Sentinel: %w", err)
		}
		args = append([]string{file, "--sentinel"}, args...)
	}
	cmd := exec.Command(s.opts.Program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if path := libraryPath(s.opts.Program); path != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+path)
	}
	return cmd, nil
}

// ping asks over the socket, which nobody else can have; a server that still
// loads its data refuses. A server asking for a password is up.
func ping(ctx context.Context, socket string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 128)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	text := string(answer[:n])
	if strings.HasPrefix(text, "+PONG") || strings.HasPrefix(text, "-NOAUTH") {
		return nil
	}
	return errors.New(strings.TrimSpace(text))
}
