package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Failure mode 40: a panic, anywhere, is none of the exit codes keeping a
// supervisor from starting again.
func TestPanicEndsTheProcessBySignal(t *testing.T) {
	const crashing = "CDC_OUTBOX_TEST_CRASH"
	if os.Getenv(crashing) != "" {
		abortOnPanic()
		beyond := len(os.Args)
		go func() { _ = os.Args[beyond] }()
		select {}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), crashing+"=1")
	cmd.Dir = t.TempDir()
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "index out of range") {
		t.Fatalf("%v\n%s", err, output)
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGABRT {
		t.Errorf("ended with %v, want SIGABRT", cmd.ProcessState)
	}
}
