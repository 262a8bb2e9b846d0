package rig

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/child"
)

// Program is a run of the connector.
type Program struct {
	cmd     *exec.Cmd
	process *child.Process
}

// Run starts the program with settings, each key=value. It serves no HTTP, and
// what it writes to its standard output is dropped.
func Run(path string, settings ...string) (*Program, error) {
	args := []string{"run", "--set", "http.listen=", "--set", "log.level=warn"}
	for _, set := range settings {
		args = append(args, "--set", set)
	}
	p := &Program{cmd: exec.Command(path, args...)}
	p.cmd.Stdout, p.cmd.Stderr = io.Discard, os.Stderr // a pipe: the program refuses /dev/null
	p.cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	var err error
	p.process, err = child.Start(p.cmd)
	return p, err
}

// Exited is closed once the program has ended.
func (p *Program) Exited() <-chan struct{} { return p.process.Exited() }

// Stop has the program drain, and returns what it took: processor time and the
// most memory in bytes.
func (p *Program) Stop() (cpu time.Duration, peakRSS int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.process.Stop(ctx, syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	state := p.cmd.ProcessState
	if !state.Success() {
		return 0, 0, errors.New("the connector ended with " + state.String())
	}
	usage := state.SysUsage().(*syscall.Rusage)
	return state.UserTime() + state.SystemTime(), usage.Maxrss << 10, nil // Linux counts in KiB
}

// Await asks again and again, with pauses, until the answer is yes.
func Await(ctx context.Context, pause time.Duration, met func() (bool, error)) error {
	for {
		if ok, err := met(); ok || err != nil {
			return err
		}
		if err := backoff.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}
