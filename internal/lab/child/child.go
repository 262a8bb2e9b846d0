// Package child runs a program that must not outlive us.
//
// Invariants:
//
//  1. The program is in a process group of its own: a terminal's Ctrl-C reaches
//     only us, and we decide how the program ends.
//  2. On Linux the kernel signals the program when we die without stopping it.
//
// Non-goals: programs that start others and leave them behind, Windows.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Process is a running program. The methods are safe for concurrent use.
type Process struct {
	proc   *os.Process
	exited chan struct{}
}

// Start starts the command, by default with the attributes of
// Attributes(SIGKILL), in a goroutine that waits for its end. Owner: the
// Process; stop: the program's end; join: Exited.
//
// The goroutine keeps its OS thread, because the kernel sends the parent death
// signal when the *thread* that forked the child ends (prctl(2)).
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = Attributes(syscall.SIGKILL)
	}
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how the program ended stands in its own log
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &Process{proc: cmd.Process, exited: exited}, nil
}

// Exited is closed once the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Stop sends the signal and waits until the program or ctx ends. To stop what
// has ended already does nothing.
func (p *Process) Stop(ctx context.Context, sig syscall.Signal) error {
	select {
	case <-p.exited:
		return nil
	default:
	}
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d does not stop: %w", p.proc.Pid, context.Cause(ctx))
	}
}

// Signal sends the signal and does not wait. A program that has ended gets none.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.proc.Pid, err)
	}
	return nil
}

// Output runs a program in dir to the end and returns what it wrote. The error
// has the last lines of it.
func Output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, LastLines(string(out)))
	}
	return string(out), nil
}

// LastLines returns the end of a program's output, where the reason stands.
func LastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}
