package child_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/child"
)

// parentEnv makes the test binary a parent that is killed: it starts a child,
// prints its process id and waits.
const parentEnv = "CDC_OUTBOX_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		actAsParent()
	}
	goleak.VerifyTestMain(m)
}

func actAsParent() {
	cmd := command("sleep", "300")
	if _, err := child.Start(cmd); err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(cmd.Process.Pid) + "\n")
	select {}
}

func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	return cmd
}

// patience bounds a wait, for slow and busy machines.
const patience = time.Minute

func TestStopWaitsForTheEnd(t *testing.T) {
	for name, script := range map[string]string{
		"of a program that runs": "echo up; cat",
		// It waits in no system call: dash misses a signal just before that.
		"of a program that takes a while": "trap 'for i in 1 2 3 4 5 6 7 8 9; do :; done; exit' TERM; echo up; while :; do :; done",
		"which was long ago":              "echo up",
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, script)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := p.Stop(ctx, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case <-p.Exited():
			default:
				t.Error("stopped, but not exited")
			}
		})
	}
}

func TestStopGivesUpWithItsContext(t *testing.T) {
	p := start(t, "trap '' TERM; echo up; cat; cat")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx, syscall.SIGTERM); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want deadline exceeded", err)
	}
}

// start starts a shell script and waits for its first output. It is killed when
// the test ends.
func start(t *testing.T, script string) *child.Process {
	t.Helper()
	cmd := command("sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	p, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = in.Close()
		_ = r.Close()
	})
	_ = w.Close()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestChildDiesWithItsKilledParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent death signal")
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	awaitGone(t, pid)
}

// awaitGone returns once no process has the id, or only a zombie.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d is still there: %s", pid, stat)
		}
	}
}
