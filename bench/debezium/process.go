package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/child"
)

// stopTimeout is how long a program may take to end by itself.
const stopTimeout = time.Minute

// process is a program that runs, with a file of its output.
type process struct {
	name  string
	child *child.Process
	pid   int
	log   string
}

// startProcess starts the command with its output in a new file of the
// directory.
func startProcess(dir, name string, cmd *exec.Cmd) (*process, error) {
	log, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	c, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &process{name: name, child: c, pid: cmd.Process.Pid, log: filepath.Join(dir, filepath.Base(log.Name()))}, nil
}

// err is that the process has ended, or nil.
func (p *process) err() error {
	select {
	case <-p.child.Exited():
		return fmt.Errorf("%s ended by itself", p.name)
	default:
		return nil
	}
}

// explain adds what the process printed last to an error.
func (p *process) explain(err error) error {
	if err == nil {
		return nil
	}
	text, readErr := os.ReadFile(p.log)
	if readErr != nil {
		return err // the log would only explain
	}
	if len(text) == 0 {
		return fmt.Errorf("%w; it printed nothing", err)
	}
	return fmt.Errorf("%w; it printed last:\n%s", err, child.LastLines(withoutFrames(string(text))))
}

// withoutFrames drops the lines of a Java stack trace that name a method: those
// that tell the reason are before and between them.
func withoutFrames(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\tat ") && !strings.HasPrefix(line, "\t... ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// stop ends the process and all of its group: gently at first.
func (p *process) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := p.child.Stop(ctx, syscall.SIGTERM)
	if err != nil {
		err = fmt.Errorf("%s was killed, %s after SIGTERM: %w", p.name, stopTimeout, err)
	}
	p.kill()
	return err
}

// kill ends the process and all of its group at once.
func (p *process) kill() {
	_ = syscall.Kill(-p.pid, syscall.SIGKILL) // an error says that there is nobody
	<-p.child.Exited()
}
