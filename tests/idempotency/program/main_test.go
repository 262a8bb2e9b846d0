package program

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// binary is the program.
var binary string

func TestMain(m *testing.M) { pgtest.Main(redistest.With(dynamotest.With(building{m}))) }

// building runs tests with the program, built.
type building struct{ *testing.M }

func (b building) Run() int {
	dir, err := os.MkdirTemp("", "cdc-outbox-idempotency")
	if err == nil {
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "cdc-outbox-idempotency")
		var out []byte
		out, err = exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary,
			"github.com/cdc-outbox/cdc-outbox/idempotency/cmd/cdc-outbox-idempotency").CombinedOutput()
		fmt.Fprintf(os.Stderr, "%s", out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		return 1
	}
	return b.M.Run()
}

// outcome is a command line's output and exit code.
type outcome struct {
	code           int
	stdout, stderr string
}

// execute runs a command line for the store.
func execute(t *testing.T, store string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "CDC_OUTBOX_IDEMPOTENCY_STORE="+store)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
