package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execute runs a command line in memory.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
	code = p.run(t.Context(), args)
	return code, out.String(), errs.String()
}

func TestDemoEndsAfterItsEvents(t *testing.T) {
	code, stdout, stderr := execute(t, "--events", "5")
	if code != 0 || stderr != "" {
		t.Errorf("code %d, %s", code, stderr)
	}
	must.Contain(t, stdout, "5 committed, 5 arrived", "http://127.0.0.1:")
}

func TestHelpAndVersion(t *testing.T) {
	for flag, want := range map[string]string{"--help": "--events N", "-h": "Example:\n  cdc-outbox-demo ", "--version": "cdc-outbox-demo "} {
		code, stdout, stderr := execute(t, flag)
		if code != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("%s: code %d, %q, %q", flag, code, stdout, stderr)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for name, args := range map[string][]string{
		"flag that it lacks": {"--quickly"},
		"negative count":     {"--events", "-1"},
		"argument":           {"run"},
	} {
		code, stdout, stderr := execute(t, args...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "error: ") || !strings.HasSuffix(stderr, "\nremedy: run cdc-outbox-demo --help\n") {
			t.Errorf("%s: code %d, %q, %q", name, code, stdout, stderr)
		}
	}
}
