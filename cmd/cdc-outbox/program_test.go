package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// outcome is what a command line left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

// execute runs a command line in memory; the connector does nothing.
func execute(ctx context.Context, environ []string, args ...string) outcome {
	connect := func(context.Context, pipeline.Options) error { return nil }
	return executeWith(ctx, connect, environ, args...)
}

func executeWith(ctx context.Context, connect func(context.Context, pipeline.Options) error, environ []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	environ = append(slices.Clip(environ), "GOGC=100", "GOMEMLIMIT=off") // or run would bound the memory of the tests
	p := &program{environ: environ, stdout: &stdout, stderr: &stderr, connect: connect}
	code := p.run(ctx, args)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestEveryVerbHasHelpWithAnExample(t *testing.T) {
	for _, v := range new(program).line().Verbs {
		for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}} {
			got := execute(t.Context(), nil, args...)
			if got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, "\n  "+v.Name+" ") {
				t.Errorf("%v does not list %s: %+v", args, v.Name, got)
			}
		}
		for _, args := range [][]string{{v.Name, "--help"}, {v.Name, "-h"}, {"help", v.Name}} {
			got := execute(t.Context(), nil, args...)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("%v: code %d, stderr %q", args, got.code, got.stderr)
			}
			if !strings.HasPrefix(got.stdout, "cdc-outbox "+v.Name+": ") {
				t.Errorf("%v: does not begin with the verb and what it does: %q", args, got.stdout)
			}
			_, example, ok := strings.Cut(got.stdout, "\nExample:\n")
			if !ok || !strings.Contains(example, "cdc-outbox "+v.Name) {
				t.Errorf("%v: has no example of the verb: %q", args, got.stdout)
			}
		}
	}
}
func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want []string // parts of stderr
	}{
		{"no verb", nil, []string{"no verb given", "cdc-outbox --help"}},
		{"mistyped verb", []string{"rnu"}, []string{`unknown verb "rnu"`, "did you mean cdc-outbox run?"}},
		{"unknown verb", []string{"publish"}, []string{`unknown verb "publish"`, "run, "}},
		{"half a verb", []string{"dead-letters"}, []string{"first word of 3 verbs", "dead-letters redrive --help"}},
		{"letters not chosen", []string{"dead-letters", "redrive", "--publish"}, []string{"needs --id, --reason", "for all letters: --all"}},
		{"letters chosen twice", []string{"dead-letters", "redrive", "--all", "--id", "1"}, []string{"leave out --all"}},
		{"half a place", []string{"dead-letters", "redrive", "--partition", "1"}, []string{"both --partition and --offset"}},
		{"no place", []string{"dead-letters", "show"}, []string{"needs --partition and --offset"}},
		{"unknown reason", []string{"dead-letters", "list", "--reason", "too_large"}, []string{`"too_large"`, "record_too_large"}},
		{"time to come", []string{"dead-letters", "list", "--since", "2126-01-01T00:00:00Z"}, []string{"in the future"}},
		{"verb that moved", []string{"idempotency", "inspect", "--id", "1"}, []string{"program cdc-outbox-idempotency", "go install "}},
		{"help of a verb that moved", []string{"help", "idempotency", "purge"}, []string{"program cdc-outbox-idempotency"}},
		{"verb in capitals", []string{"Version"}, []string{"did you mean cdc-outbox version?"}},
		{"flag before the verb", []string{"-c", "x.yaml", "run"}, []string{"the verb comes first"}},
		{"mistyped flag", []string{"healthcheck", "--redy"}, []string{`has no flag "--redy"`, "did you mean --ready?"}},
		{"unknown flag", []string{"run", "--quickly=1"}, []string{`run has no flag "--quickly"`, "cdc-outbox run --help"}},
		{"other programs' --config", []string{"run", "--config", "x"}, []string{`has no flag "--config"`, "did you mean -c?"}},
		{"other programs' --dry-run", []string{"run", "--dry-run"}, []string{`has no flag "--dry-run"`, "cdc-outbox check"}},
		{"other programs' --dry-run of setup", []string{"setup", "--dry-run"}, []string{"did you mean --print?"}},
		{"other programs' --dry-run of teardown", []string{"teardown", "--dry-run"}, []string{"without --yes"}},
		{"bad flag value", []string{"healthcheck", "--ready=perhaps"}, []string{"healthcheck has a bad flag", `"perhaps"`}},
		{"flag without its value", []string{"run", "-c"}, []string{"flag needs an argument"}},
		{"argument", []string{"version", "x"}, []string{"version takes no arguments"}},
		{"flag that only others have", []string{"version", "-c", "x"}, []string{`version has no flag "-c"`}},
		{"yes without a gap", []string{"setup", "--yes"}, []string{"--accept-gap"}},
		{"print with a gap", []string{"setup", "--print", "--accept-gap"}, []string{"--print"}},
		{"role without a name", []string{"setup", "--role", ""}, []string{"--role has no name"}},
		{"SQL as JSON", []string{"setup", "--print", "--json"}, []string{"prints SQL"}},
		{"hanging transaction without its offset", []string{"txn", "abort", "--topic", "t", "--partition", "0"}, []string{"--start-offset", "txn list"}},
		{"partition without its topic", []string{"txn", "abort", "--partition", "0"}, []string{"needs all of --topic"}},
		{"help of a first word", []string{"help", "txn"}, []string{"txn list", "txn abort"}},
		{"first word", []string{"txn", "--help"}, []string{"txn list", "txn abort"}},
		{"unknown schema", []string{"setup", "--schema", "camel"}, []string{`unknown schema "camel"`}},
		{"demo, a program of its own", []string{"demo", "--events", "20"}, []string{"make demo", "cdc-outbox-demo; ", "docker run "}},
		{"help of the demo", []string{"help", "demo"}, []string{"make demo"}},
		{"mistyped key", []string{"run", "--set", "source.sloot=x"}, []string{"source.sloot", "did you mean source.slot?"}},
		{"mistyped variable", []string{"run"}, []string{"CDC_OUTBOX_SOURCE_URI", "did you mean CDC_OUTBOX_SOURCE_URL?"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := execute(t.Context(), []string{"CDC_OUTBOX_SOURCE_URI=x"}, tt.args...)
			if got.code != 2 || got.stdout != "" {
				t.Errorf("code %d, stdout %q; want 2 and nothing", got.code, got.stdout)
			}
			if !strings.HasPrefix(got.stderr, "error: ") || !strings.Contains(got.stderr, "remedy: ") {
				t.Errorf("stderr %q is no error with a remedy", got.stderr)
			}
			must.Contain(t, got.stderr, tt.want...)
		})
	}
}

func TestConfigurationProblemsComeAtOnce(t *testing.T) {
	file := writeFile(t, "source:\n  sloot: x\nlog:\n  level: loud\n")
	for name, got := range map[string]outcome{
		"by flag":     execute(t.Context(), nil, "run", "-c", file),
		"by variable": execute(t.Context(), []string{"CDC_OUTBOX_CONFIG=" + file}, "healthcheck"),
	} {
		want := "error: the configuration has 3 problems\n" +
			"  " + file + ":2: source.sloot: unknown key\n    remedy: did you mean source.slot?\n" +
			"  source.url: is required\n" +
			"    remedy: set it in the file named by -c, or export CDC_OUTBOX_SOURCE_URL=postgres://user@host:5432/database\n" +
			"  " + file + ":4: log.level \"loud\": must be one of debug, info, warn, error\n    remedy: write one of them\n"
		if got.code != 2 || got.stderr != want {
			t.Errorf("%s: code %d, stderr\n%s\nwant\n%s", name, got.code, got.stderr, want)
		}
	}
}
func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		code   int
		stderr string // the end
	}{
		{"clean stop", nil, 0, ""},
		{"transient", errors.New("broker is down"), 1, "error: broker is down\n"},
		{"configuration", failure.Configf("grant it", "no privilege"), 2, "error: no privilege\nremedy: grant it\n"},
		{
			"data with line breaks", failure.Configf("grant it", "no privilege on \"a\nremedy: drop it\""), 2,
			"error: no privilege on \"a\n  remedy: drop it\"\nremedy: grant it\n",
		},
		{"loss", fmt.Errorf("open: %w", failure.Lossf("decide", "slot is gone")), 3, "error: open: slot is gone\nremedy: decide\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			connect := func(context.Context, pipeline.Options) error { return tt.err }
			got := executeWith(t.Context(), connect, []string{"CDC_OUTBOX_SOURCE_URL=postgres:///app", "CDC_OUTBOX_LOG_LEVEL=error", "CDC_OUTBOX_LOG_FORMAT=console"}, "run")
			if got.code != tt.code || got.stderr != tt.stderr || got.stdout != "" {
				t.Errorf("got %+v, want code %d and stderr %q", got, tt.code, tt.stderr)
			}
		})
	}
}

func TestTheLastErrorIsALineOfAJSONLog(t *testing.T) {
	connect := func(context.Context, pipeline.Options) error { return failure.Lossf("decide", "slot is gone") }
	got := executeWith(t.Context(), connect, []string{"CDC_OUTBOX_SOURCE_URL=postgres:///app"}, "run")
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
	for _, part := range []string{`"level":"error"`, `"error":"slot is gone"`, `"remedy":"decide"`, `"exit_code":3`} {
		if last := lines[len(lines)-1]; !strings.Contains(last, part) {
			t.Errorf("no %s in %s", part, last)
		}
	}
}

func TestRunLogsOnStderr(t *testing.T) {
	connect := func(_ context.Context, o pipeline.Options) error {
		o.Log.Debug("hidden")
		o.Log.Warn("seen", zap.Any("config", o.Config))
		return nil
	}
	environ := []string{"CDC_OUTBOX_SOURCE_URL=postgres://u:xyzzy@localhost/app"}
	asJSON := executeWith(t.Context(), connect, environ, "run")
	console := executeWith(t.Context(), connect, environ, "run", "--set", "log.format=console")
	for _, got := range []outcome{asJSON, console} {
		if got.code != 0 || got.stdout != "" || strings.Contains(got.stderr, "hidden") || strings.Contains(got.stderr, "xyzzy") {
			t.Errorf("got %+v", got)
		}
	}
	if !strings.Contains(asJSON.stderr, `"level":"warn"`) || !strings.Contains(asJSON.stderr, `"msg":"seen"`) {
		t.Errorf("not JSON: %s", asJSON.stderr)
	}
	must.Contain(t, console.stderr, "\tWARN\tseen\t")
}

// A drain may take as long as errors.drain_timeout: until then the user should
// not have to guess.
func TestRunSaysThatItIsStopping(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	connect := func(ctx context.Context, _ pipeline.Options) error {
		stop(cli.Stopped{Signal: os.Interrupt})
		<-ctx.Done()
		return nil
	}
	got := executeWith(ctx, connect, []string{"CDC_OUTBOX_SOURCE_URL=postgres:///app"}, "run")
	_, after, found := strings.Cut(got.stderr, `"msg":"stopping; a signal more than a second later ends the process at once","cause":"stopped by signal: interrupt"`)
	if got.code != 0 || !found || !strings.Contains(after, `"msg":"stopped"`) {
		t.Errorf("got %+v", got)
	}
}

func TestInterruptedVerbSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cli.Stopped{Signal: os.Interrupt})
	connect := func(ctx context.Context, _ pipeline.Options) error {
		return fmt.Errorf("connect: %w", ctx.Err())
	}
	got := executeWith(ctx, connect, []string{"CDC_OUTBOX_SOURCE_URL=postgres:///app", "CDC_OUTBOX_LOG_LEVEL=error", "CDC_OUTBOX_LOG_FORMAT=console"}, "run")
	if want := "cdc-outbox: stopped by signal: interrupt\n"; got.code != 1 || got.stderr != want {
		t.Errorf("got %+v, want code 1 and %q", got, want)
	}
}

// TestDatabaseOutOfReach runs each verb that needs PostgreSQL without a server.
func TestDatabaseOutOfReach(t *testing.T) {
	environ := []string{"CDC_OUTBOX_SOURCE_URL=postgres://cdc:xyzzy@127.0.0.1:1/app", "CDC_OUTBOX_SINK_STDOUT=true"}
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"setup"}, 1},
		{[]string{"setup", "--accept-gap"}, 1},
		{[]string{"teardown", "--yes"}, 1},
		{[]string{"check"}, 2},
		{[]string{"check", "--json"}, 2},
		{[]string{"status"}, 1},
		{[]string{"status", "--json"}, 1},
		{[]string{"tail"}, 1},
	} {
		got := execute(t.Context(), environ, tt.args...)
		if got.code != tt.code || !strings.HasPrefix(got.stderr, "error: ") {
			t.Errorf("%v: %+v, want code %d", tt.args, got, tt.code)
		}
		if strings.Contains(got.stdout+got.stderr, "xyzzy") {
			t.Errorf("%v shows the password: %+v", tt.args, got)
		}
		if slices.Contains(tt.args, "--json") && !json.Valid([]byte(got.stdout)) {
			t.Errorf("%v prints no JSON: %s", tt.args, got.stdout)
		}
	}
}

func TestSetupPrintsItsSQL(t *testing.T) {
	environ := []string{"CDC_OUTBOX_SOURCE_URL=postgres://cdc@127.0.0.1:1/app"}
	got := execute(t.Context(), environ, "setup", "--print", "--role", "pipeline", "--schema", "snake")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	must.Contain(t, got.stdout, "CREATE TABLE", "aggregate_type", "CREATE PUBLICATION", `"pipeline"`, "pg_create_logical_replication_slot")
}

func TestVersion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		got := execute(t.Context(), nil, args)
		if got.code != 0 || !strings.Contains(got.stdout, "\ncommit ") || !strings.Contains(got.stdout, "\ngo1.") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestNoSecretIsShown puts a secret where users put one by mistake.
func TestNoSecretIsShown(t *testing.T) {
	for _, args := range [][]string{
		{"postgres://u:xyzzy@h/d"},
		{"run", "postgres://u:xyzzy@h/d"},
		{"run", "password=xyzzy"},
		{"run", "--password=xyzzy"},
		{"run", "--url:postgres://u:xyzzy@h/d"},
		{"run", "--set", "postgres://u:xyzzy@h/d"},
		{"run", "--set", "source.password=xyzzy"},
		{"run", "--set", "source.url:xyzzy=x"},
		{"run", "--set", "sink.kafka.sasl.password=xyzzy"},
		{"run", "--set", "sink.kafka.brokers=u:xyzzy@h:1"},
		{"run", "--set", "log.level=u:xyzzy@h"},
		{"run", "--set", "source.url=host=h\x00 password=xyzzy"},
		{"healthcheck", "--set", "http.listen=u:xyzzy@h"},
	} {
		got := execute(t.Context(), []string{"CDC_OUTBOX_PASSWORD=xyzzy"}, args...)
		if got.code != 2 || strings.Contains(got.stdout+got.stderr, "xyzzy") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// FuzzURL gives run connection strings holding a password in all kinds of
// broken surroundings.
func FuzzURL(f *testing.F) {
	for _, seed := range [][2]string{
		{"postgres://u:", "@h:port/d"}, {"postgres://u:", "%zz@h/d"}, {"postgresql://", "@h:1:2/d"}, {"host=h password='", ""},
		{"host=h password=", " x"}, {"postgres://u:a`", "`: failed to configure TLS@h/d?sslmode=x"}, {"postgres://h/d?password=", "&sslmode=x"},
		{"postgres://h/d?sslrootcert=/x&sslpassword=", ""}, {"postgres://[", "]/d"}, {"postgres://u:", "@h:99999/d"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if !strings.HasSuffix(before, ":") && !strings.HasSuffix(before, "password=") {
			t.Skip("no password stands here")
		}
		got := execute(t.Context(), nil, "run", "--set", "source.url="+before+"xyzzy"+after)
		if strings.Contains(got.stdout+got.stderr, "xyzzy") {
			t.Errorf("%q %q: %+v", before, after, got)
		}
	})
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// brokenWriter is a standard output that is gone.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBrokenStdoutIsAnError(t *testing.T) {
	var stderr bytes.Buffer
	p := &program{stdout: brokenWriter{}, stderr: &stderr}
	if code := p.run(t.Context(), []string{"version"}); code != 1 || !strings.Contains(stderr.String(), "closed pipe") {
		t.Errorf("code %d, stderr %q", code, stderr.String())
	}
}

func TestVerbsActOnTheChosenPipeline(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cdc-outbox.yaml")
	text := "source: {url: 'postgres://nobody@127.0.0.1:1/app'}\nsink: {stdout: {}}\npipelines: {orders: {}, billing: {}}\n"
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	for _, tt := range []struct {
		args   string
		code   int
		stdout []string
		stderr string
	}{
		{"setup --print", 0, []string{"-- Pipeline orders: ", `"cdc_outbox_orders"`, "-- Pipeline billing: ", `"cdc_outbox_billing"`}, ""},
		{"setup --print --pipeline orders", 0, []string{`"cdc_outbox_orders"`}, ""},
		{"setup --print --pipeline order", 2, nil, `no pipeline "order"` + "\nremedy: did you mean orders?"},
		{"tail", 2, nil, "remedy: choose one with --pipeline"},
		{"wait --lsn 0/16B3748", 2, nil, "remedy: choose one with --pipeline"},
		{"status", 1, []string{"pipeline orders\n", "pipeline billing\n"}, "pipeline billing: "},
		{"status --json", 1, []string{`"pipelines"`, `"orders": {`, `"billing": {`}, "pipeline orders: "},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := append(strings.Fields(tt.args), "-c", file)
			got := execute(t.Context(), nil, args...)
			if got.code != tt.code || !strings.Contains(got.stderr, tt.stderr) {
				t.Errorf("code %d, stderr %q", got.code, got.stderr)
			}
			must.Contain(t, got.stdout, tt.stdout...)
			if tt.args == "setup --print --pipeline orders" && strings.Contains(got.stdout, "billing") {
				t.Errorf("acts on another pipeline:\n%s", got.stdout)
			}
		})
	}
}

// Beside an error nobody says that no transaction is open.
func TestTransactionsOfNoneThatCanBeAsked(t *testing.T) {
	for name, delivery := range map[string]string{"a delivery without transactions": "at_least_once", "brokers away": "exactly_once"} {
		for _, args := range [][]string{{"txn", "list"}, {"txn", "abort"}, {"txn", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0"}} {
			got := execute(t.Context(), []string{"CDC_OUTBOX_SOURCE_URL=postgres:///app"}, append(args,
				"--set", "sink.kafka.brokers=127.0.0.1:1", "--set", "sink.kafka.delivery="+delivery)...)
			if got.code == 0 || got.stdout != "" || got.stderr == "" {
				t.Errorf("%s: %v: %+v", name, args, got)
			}
		}
	}
}
