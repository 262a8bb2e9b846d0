package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// connector is a run of the program as a process.
type connector struct {
	t       testing.TB
	cmd     *exec.Cmd
	process *child.Process
	log     string // path of the standard error
	started time.Time
}

// startConnector runs the program with the configuration file. The process is
// killed when the test ends; a failed test shows the log.
func startConnector(t testing.TB, config string) *connector {
	t.Helper()
	cmd := exec.Command(binary, "run", "-c", config)
	cmd.Env = environment(t)
	return launch(t, cmd)
}

// launch runs the command in the same way: the connector, or a related program.
func launch(t testing.TB, cmd *exec.Cmd) *connector {
	t.Helper()
	c := &connector{t: t, cmd: cmd, log: filepath.Join(t.TempDir(), "log")}
	log := must.Get(os.Create(c.log))(t)
	defer log.Close()
	c.cmd.Stderr = log
	c.started = time.Now()
	c.process = must.Get(child.Start(c.cmd))(t)
	t.Cleanup(func() {
		c.kill()
		c.followsTheTable()
		if t.Failed() {
			t.Logf("log of process %d:\n%s", c.cmd.Process.Pid, c.lastLines(30))
		}
	})
	return c
}

// environment is the program's: without the variables meant for the tests.
func environment(t testing.TB) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
}

// kill kills the process and waits for the end.
func (c *connector) kill() { c.end(syscall.SIGKILL) }

// stop ends the process as operators do, and wants a drain. Before its first line, a process may
// not catch signals yet: SIGTERM then ends it at once.
func (c *connector) stop() {
	c.t.Helper()
	await.Until(c.t, "a line in the log", func() bool {
		log, err := os.Stat(c.log)
		return c.exited() || err == nil && log.Size() > 0
	})
	if code := c.end(syscall.SIGTERM); code != 0 {
		c.t.Errorf("%s after SIGTERM, want exit status 0", c.cmd.ProcessState)
	}
}

// end signals the process, waits for its end and returns the exit code, -1 for
// a signal's.
func (c *connector) end(sig syscall.Signal) int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.process.Stop(ctx, sig); err != nil {
		c.t.Errorf("stop the program: %v", err)
		return -1
	}
	return c.cmd.ProcessState.ExitCode()
}

// wait waits until the process has ended by itself, and returns the exit code.
func (c *connector) wait() int {
	c.t.Helper()
	select {
	case <-c.process.Exited():
	case <-time.After(patience):
		c.t.Fatal("the program does not end")
	}
	return c.cmd.ProcessState.ExitCode()
}

// running fails the test if the process has ended.
func (c *connector) running() {
	c.t.Helper()
	if c.exited() {
		c.t.Fatalf("the program ended by itself: %s", c.cmd.ProcessState)
	}
}

func (c *connector) exited() bool {
	select {
	case <-c.process.Exited():
		return true
	default:
		return false
	}
}

func (c *connector) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("%s to the program: %v", sig, err)
	}
}

// awaitLog returns once the process has logged the text.
func (c *connector) awaitLog(text string) {
	c.t.Helper()
	await.Until(c.t, fmt.Sprintf("%q in the log", text), func() bool {
		c.running()
		log, err := os.ReadFile(c.log)
		return err == nil && bytes.Contains(log, []byte(text))
	})
}

// lastLog is when the process has last logged the text.
func (c *connector) lastLog(text string) (at time.Time, ok bool) {
	log, err := os.ReadFile(c.log)
	if err != nil {
		return at, false
	}
	end := bytes.LastIndex(log, []byte(text))
	if end < 0 {
		return at, false
	}
	line, _, _ := bytes.Cut(log[bytes.LastIndexByte(log[:end], '\n')+1:], []byte("\n"))
	var entry struct{ Time time.Time }
	err = json.Unmarshal(line, &entry)
	return entry.Time, err == nil
}

func (c *connector) lastLines(n int) string {
	log, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(log), "\n")
	return strings.Join(lines[max(0, len(lines)-n-1):], "")
}

// peakRSS is the peak memory of the running process.
func (c *connector) peakRSS() int64 {
	c.t.Helper()
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid)))(c.t)
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib := must.Get(strconv.ParseInt(strings.Fields(value)[0], 10, 64))(c.t)
			return kib << 10
		}
	}
	c.t.Fatalf("no VmHWM in %s", status)
	return 0
}

// run runs a command of the program to its end.
func (w *world) run(args ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), binary, append(args, "-c", w.config)...)
	cmd.Env = environment(w.t)
	toTheEnd(w.t, cmd)
}

// toTheEnd runs a command of the program. A failure fails the test.
func toTheEnd(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cdc-outbox %v: %v\n%s", cmd.Args[1:], err, out)
	}
}
