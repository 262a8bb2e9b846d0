package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a running postmaster.
type process struct {
	proc   *os.Process
	exited chan struct{} // closed once the process is reaped
}

// startProcess starts the command in a goroutine that waits for its end.
// Owner: the process; stop: the command's end; join: exited.
//
// The goroutine keeps its OS thread, because the kernel sends the parent death
// signal when the *thread* that forked the child ends (prctl(2)).
func startProcess(cmd *exec.Cmd) (*process, error) {
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how the server ended stands in its log
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &process{proc: cmd.Process, exited: exited}, nil
}

// stop sends the mode's signal and waits for the end of the process or of ctx.
// (Shutdown signals: PostgreSQL documentation, "Shutting Down the Server".)
func (p *process) stop(ctx context.Context, mode StopMode) error {
	sig := syscall.SIGINT
	if mode == Immediate {
		sig = syscall.SIGQUIT
	}
	select {
	case <-p.exited:
		return nil
	default:
	}
	if err := p.proc.Signal(sig); err != nil {
		return fmt.Errorf("signal process %d: %w", p.proc.Pid, err)
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d does not stop: %w", p.proc.Pid, context.Cause(ctx))
	}
}
