package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// stopTimeout is how long a program may take to end by itself.
const stopTimeout = time.Minute

// Process is a running program. The output is kept to explain errors.
type Process struct {
	name  string
	cmd   *exec.Cmd
	child *child.Process
	log   *os.File // without a name
}

// Start starts the command. The standard output is part of the log unless set in the
// command.
func Start(name string, cmd *exec.Cmd) (*Process, error) {
	log, err := os.CreateTemp("", "cdc-outbox-bench-*.log")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(log.Name()) // we and the child have the file open
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	c, err := child.Start(cmd)
	if err != nil {
		_ = log.Close()
		return nil, err
	}
	return &Process{name: name, cmd: cmd, child: c, log: log}, nil
}

// Exited is closed once the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.child.Exited() }

// Alive returns an error once the process has ended.
func (p *Process) Alive(context.Context) error {
	select {
	case <-p.Exited():
		return fmt.Errorf("%s ended by itself", p.name)
	default:
		return nil
	}
}

// Usage is the process's usage up to now.
func (p *Process) Usage() (Usage, error) { return measure(p.cmd.Process.Pid) }

// Failed is the error of the ended process, if any.
func (p *Process) Failed() error {
	if p.cmd.ProcessState.Success() {
		return nil
	}
	return p.Explain(fmt.Errorf("%s: %s", p.name, p.cmd.ProcessState))
}

// Explain adds the process's last output to an error.
func (p *Process) Explain(err error) error {
	if err == nil {
		return nil
	}
	text, readErr := io.ReadAll(io.NewSectionReader(p.log, 0, 1<<30))
	if readErr != nil {
		return err // the log would only explain
	}
	if len(text) == 0 {
		return fmt.Errorf("%w; it printed nothing", err)
	}
	return fmt.Errorf("%w; it printed last:\n%s", err, child.LastLines(WithoutFrames(string(text))))
}

// WithoutFrames drops the lines of a Java stack trace naming a method: the reason is
// in the lines before and between them.
func WithoutFrames(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\tat ") && !strings.HasPrefix(line, "\t... ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// Stop ends the process and its whole group, gently at first.
func (p *Process) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := p.child.Stop(ctx, syscall.SIGTERM)
	if err != nil {
		err = fmt.Errorf("%s was killed, %s after SIGTERM: %w", p.name, stopTimeout, err)
	}
	p.Kill()
	return err
}

// Kill ends the process and its whole group at once.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // an error says there is nobody
	<-p.Exited()
}
