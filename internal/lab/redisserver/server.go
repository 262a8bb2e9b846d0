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
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// Limits of waiting for the server, for slow and busy machines.
const (
	startTimeout = 60 * time.Second
	portAttempts = 10
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

// AllSettings returns Settings and those that the server has anyway.
func (o Options) AllSettings() map[string]string {
	all := map[string]string{"save": "", "appendonly": "no"}
	maps.Copy(all, o.Settings)
	return all
}

// Server is a Redis server. Its methods must not be called concurrently, except
// Addr and Socket.
type Server struct {
	opts    Options
	dir     string // data, socket, log
	port    int
	process *child.Process // nil while stopped
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
	// A port that is free when asked for may be taken a moment later.
	for range portAttempts {
		if s.port, err = freeport.Take(); err != nil {
			break
		}
		if err = s.Resume(ctx); err == nil {
			return s, nil
		}
		if !strings.Contains(err.Error(), "Address already in use") {
			break
		}
	}
	return nil, errors.Join(err, s.Close())
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Socket returns the path of the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "s") }

// Stop sends the signal, e.g. SIGTERM for an orderly end or SIGKILL for a
// crash, and waits until the server is gone; what is on disk stays. Stopping a
// stopped server does nothing.
func (s *Server) Stop(ctx context.Context, sig syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Stop(ctx, sig); err != nil {
		return fmt.Errorf("stop Redis: %w", err)
	}
	s.process = nil
	return nil
}

// Resume starts a stopped server again, at the same address, and waits until it
// answers and has read what is on disk.
func (s *Server) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, log, err := s.spawn()
	if err != nil {
		return err
	}
	asked := func(ctx context.Context) error { return ping(ctx, s.Socket()) }
	if err := await.Ready(ctx, p.Exited(), asked); err != nil {
		text, _ := os.ReadFile(log) // best effort: it only explains
		stopErr := p.Stop(context.WithoutCancel(ctx), syscall.SIGKILL)
		return errors.Join(fmt.Errorf("start %s: %w: %s", s.opts.Program, err, child.LastLines(string(text))), stopErr)
	}
	s.process = p
	return nil
}

// Pause stops the server's process as it stands (SIGSTOP): connections stay
// open, nothing is answered, the clock goes on.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *Server) Continue() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	if s.process == nil {
		return errors.New("signal Redis: it is stopped")
	}
	return s.process.Signal(sig)
}

// Close kills the server and removes its directory. It may be called more than
// once.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return errors.Join(s.Stop(ctx, syscall.SIGKILL), os.RemoveAll(s.dir))
}

// spawn starts the program; what it says goes to the file log.
func (s *Server) spawn() (p *child.Process, log string, err error) {
	f, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return nil, "", err
	}
	defer f.Close() // the child has its own descriptor
	all := map[string]string{
		"bind": "127.0.0.1", "port": strconv.Itoa(s.port),
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
			return nil, "", fmt.Errorf("configure Sentinel: %w", err)
		}
		args = append([]string{file, "--sentinel"}, args...)
	}
	cmd := exec.Command(s.opts.Program, args...)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if path := libraryPath(s.opts.Program); path != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+path)
	}
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	p, err = child.Start(cmd)
	return p, f.Name(), err
}

// ping asks over the socket, which nobody else can have; a server that still
// loads its data refuses. One that wants a password is up.
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
