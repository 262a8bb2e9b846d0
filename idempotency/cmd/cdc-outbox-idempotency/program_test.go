package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is what a command line left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

// execute runs a command line in memory.
func execute(ctx context.Context, environ []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	p := &program{environ: environ, stdout: &stdout, stderr: &stderr}
	code := p.run(ctx, args)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}} {
		got := execute(t.Context(), nil, args...)
		for _, v := range new(program).line().Verbs {
			if got.code != 0 || !strings.Contains(got.stdout, "\n  "+v.Name+" ") {
				t.Errorf("%v does not list %s: %+v", args, v.Name, got)
			}
		}
	}
	for _, v := range new(program).line().Verbs {
		for _, args := range [][]string{{v.Name, "--help"}, {v.Name, "-h"}, {"help", v.Name}} {
			got := execute(t.Context(), nil, args...)
			if got.code != 0 || got.stderr != "" || !strings.HasPrefix(got.stdout, name+" "+v.Name+": ") {
				t.Errorf("%v: %+v", args, got)
			}
		}
		if err := parses(strings.TrimPrefix(v.Example, name+" ")); err != nil {
			t.Errorf("%s: its example: %v", v.Name, err)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		if got := execute(t.Context(), nil, args); got.code != 0 || !strings.HasPrefix(got.stdout, name+" ") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct{ args, stderr string }{
		{"", "no verb given; the verbs are inspect, release, purge, sweep, version\nremedy: run cdc-outbox-idempotency --help"},
		{"forget", `unknown verb "forget"; the verbs are inspect, `},
		{"inspct", `unknown verb "inspct"` + "\nremedy: did you mean cdc-outbox-idempotency inspect?"},
		{"redis://u:xyzzy@h", "unknown verb; "},
		{"inspect redis://u:xyzzy@h", "inspect takes no arguments, only flags; got 1"},
		{"inspect --stoer redis://u:xyzzy@h", `inspect has no flag "--stoer"` + "\nremedy: did you mean --store?"},
		{"inspect --url:redis://u:xyzzy@h", "inspect has no flag\n"},
		{"purge --older yesterday", "purge has a bad flag"},
	} {
		got := execute(t.Context(), nil, strings.Fields(tt.args)...)
		if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, tt.stderr) || strings.Contains(got.stderr, "xyzzy") {
			t.Errorf("%s: %+v, want %q", tt.args, got, tt.stderr)
		}
	}
}

func TestInterruptedVerbSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cli.Stopped{Signal: os.Interrupt})
	got := execute(ctx, nil, strings.Fields("inspect --store postgres://127.0.0.1:1/d --scope s --id 1")...)
	if want := name + ": stopped by signal: interrupt\n"; got.code != 1 || got.stderr != want {
		t.Errorf("got %+v, want code 1 and %q", got, want)
	}
}

// TestDocumentedCommandsExist parses the commands that documents show, and runs
// none.
func TestDocumentedCommandsExist(t *testing.T) {
	shown := regexp.MustCompile("(?m)^ *" + name + " (.*)$|`" + name + " ([^`\n]+)`")
	notWords := regexp.MustCompile(`\s#.*|<[^>]*>`)
	const path = "../../../docs/how-to/operate-consumers.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := shown.FindAllStringSubmatch(string(text), -1)
	for _, m := range found {
		command := notWords.ReplaceAllStringFunc(m[1]+m[2], func(s string) string {
			if strings.HasPrefix(s, "<") {
				return "1"
			}
			return ""
		})
		if err := parses(command); err != nil {
			t.Errorf("%s: %s: %v", path, command, err)
		}
	}
	if len(found) < 3 {
		t.Errorf("%s: only %d commands found", path, len(found))
	}
}

// parses returns the faults of a command line, short of running it.
func parses(command string) error {
	_, err := new(program).line().Parse(strings.Fields(command))
	return err
}
