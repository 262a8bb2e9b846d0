package child_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
			must.OK(t, p.Stop(ctx, syscall.SIGTERM))
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

// start starts a shell script and waits for the first output. It is killed when
// the test ends.
func start(t *testing.T, script string) *child.Process {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	in := must.Get(cmd.StdinPipe())(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	p := must.Get(child.Start(cmd))(t)
	t.Cleanup(func() {
		if err := p.Stop(context.Background(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = in.Close()
		_ = r.Close()
	})
	_ = w.Close()
	must.Get(bufio.NewReader(r).ReadString('\n'))(t)
	return p
}
