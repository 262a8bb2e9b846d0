package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// Limits of waiting for a server, for slow and busy machines.
const (
	startTimeout = 60 * time.Second
	portAttempts = 10
)

// ErrPortTaken is the error of a start while another process has the port.
var ErrPortTaken = errors.New("port is taken")

// Server runs a program serving a port of the loopback address, and starts it
// again at the same address. The methods must not be called concurrently,
// except Addr.
type Server struct {
	// Name is the server's, for errors.
	Name string
	// Command makes the command, for the port. Without attributes the command has
	// those of Attributes(SIGKILL).
	Command func() (*exec.Cmd, error)
	// Log is the path of the file for the output.
	Log string
	// Answers returns nil once it has started. Optional: without it the caller waits,
	// and asks Ended meanwhile.
	Answers func(context.Context) error
	// PortTaken is a part of the message about a port in use. Optional.
	PortTaken string
	// AtOnce is the signal ending it without ceremony; SIGKILL by default.
	AtOnce syscall.Signal

	Port    int
	process *Process // nil while stopped
	logged  int64    // the size of Log before the last start
}

// Start finds a free port, starts the program there and waits until it answers. A
// process that does not ask package freeport may take the port a moment later, hence
// the attempts.
func (s *Server) Start(ctx context.Context) (err error) {
	for range portAttempts {
		if s.Port, err = freeport.Take(); err != nil {
			return err
		}
		if err = s.Resume(ctx); !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Resume starts the program at the port and waits until it answers.
func (s *Server) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.spawn(); err != nil {
		return err
	}
	if s.Answers == nil {
		return nil
	}
	if err := await.Ready(ctx, s.process.Exited(), s.Answers); err != nil {
		err = s.explain(err)
		return errors.Join(fmt.Errorf("start %s: %w", s.Name, err), s.Stop(context.WithoutCancel(ctx), s.atOnce()))
	}
	return nil
}

func (s *Server) spawn() error {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has a separate descriptor
	if s.logged, err = log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd, err := s.Command()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	s.process, err = Start(cmd)
	return err
}

// Ended returns await.ErrExited, with the program's last words, once the program has
// ended by itself.
func (s *Server) Ended(context.Context) error {
	if s.process == nil {
		return nil
	}
	select {
	case <-s.process.Exited():
		return s.explain(await.ErrExited)
	default:
		return nil
	}
}

// explain adds the program's last words since the start to an error.
func (s *Server) explain(err error) error {
	log, openErr := os.Open(s.Log)
	if openErr != nil {
		return err // the log would only explain
	}
	defer log.Close()
	text, _ := io.ReadAll(io.NewSectionReader(log, s.logged, 1<<20)) // likewise
	if s.PortTaken != "" && strings.Contains(string(text), s.PortTaken) {
		err = fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	return fmt.Errorf("%w: %s", err, LastLines(string(text)))
}

// Stop sends the signal and waits until the program is gone; the files stay.
// Stopping a stopped server does nothing.
func (s *Server) Stop(ctx context.Context, sig syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Stop(ctx, sig); err != nil {
		return fmt.Errorf("stop %s: %w", s.Name, err)
	}
	s.process = nil
	return nil
}

// Pause stops the program as it stands (SIGSTOP): connections stay open without
// answers, and the clock goes on.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *Server) Continue() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	if s.process == nil {
		return fmt.Errorf("signal %s: it is stopped", s.Name)
	}
	return s.process.Signal(sig)
}

// Close ends the program without ceremony. Close may be called more than once.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return s.Stop(ctx, s.atOnce())
}

func (s *Server) atOnce() syscall.Signal { return cmp.Or(s.AtOnce, syscall.SIGKILL) }
