package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// asProgram makes this test's binary the program: the arguments, one a line.
const asProgram = "CDC_OUTBOX_TEST_ARGS"

// process is a run of the program as a separate process, from the test named.
func process(t *testing.T, url string, set ...string) *exec.Cmd {
	t.Helper()
	args := []string{"cdc-outbox", "run", "--set", "source.url=" + url, "--set", "source.slot=" + slotOf(t),
		"--set", "sink.stdout=true", "--set", "http.listen="}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), asProgram+"="+strings.Join(args, "\n"))
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	return cmd
}

// beProgram runs main where process has started this binary.
func beProgram() {
	if args := os.Getenv(asProgram); args != "" {
		os.Args = strings.Split(args, "\n")
		main()
	}
}

func slotOf(t *testing.T) string {
	name := strings.NewReplacer("/", "_", " ", "_").Replace(strings.ToLower(t.Name()))
	return name[max(0, len(name)-60):]
}

const outbox = `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb,
	published boolean NOT NULL DEFAULT false)`

func outboxOf(t *testing.T) (url string) {
	t.Helper()
	url = pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, outbox, `CREATE PUBLICATION cdc_outbox FOR TABLE outbox`,
		`SELECT pg_create_logical_replication_slot('`+slotOf(t)+`', 'pgoutput')`,
		`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) SELECT 'order', n::text, 'Placed', '{}' FROM generate_series(1, 1000) n`)
	return url
}

// Standard output nobody reads takes no event: none is confirmed, and the last
// line of the log says why the process ended.
func TestEventsAreNotConfirmedIntoNothing(t *testing.T) {
	beProgram()
	for name, tt := range map[string]struct {
		output func(*testing.T) *os.File
		code   int
		text   string
	}{
		"a pipe without a reader": {output: brokenPipe, code: 1, text: "nobody reads standard output any more"},
		"closed":                  {output: func(*testing.T) *os.File { return nil }, code: 2, text: "standard output is closed"},
		"the null device": {output: func(t *testing.T) *os.File {
			null := must.Get(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(t)
			t.Cleanup(func() { _ = null.Close() })
			return null
		}, code: 2, text: "standard output is closed"},
	} {
		for _, mode := range []string{"wal", "poll"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				url := outboxOf(t)
				cmd := process(t, url, "source.mode="+mode, "event.position_headers=false")
				if out := tt.output(t); out != nil {
					cmd.Stdout = out
				} else {
					cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" "$@" >&-`, cmd.Path, cmd.Args[1]}
				}
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				_ = cmd.Run()
				if got := cmd.ProcessState.ExitCode(); got != tt.code {
					t.Errorf("%s, want code %d\n%s", cmd.ProcessState, tt.code, stderr.String())
				}
				lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
				var last struct {
					Error, Remedy string
					Code          int `json:"exit_code"`
				}
				if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
					t.Fatalf("the last line is no JSON: %v\n%s", err, stderr.String())
				}
				if last.Code != tt.code || last.Remedy == "" || !strings.Contains(last.Error, tt.text) {
					t.Errorf("the last line says %+v", last)
				}
				kept := `SELECT count(*) FROM outbox WHERE NOT published`
				if mode == "wal" {
					kept = `SELECT count(*) FROM pg_logical_slot_peek_binary_changes('` + slotOf(t) + `', NULL, NULL,
						'proto_version', '1', 'publication_names', 'cdc_outbox') WHERE get_byte(data, 0) = ascii('I')`
				}
				if n := number(t, url, kept); n != 1000 {
					t.Errorf("%d of 1000 events are left", n)
				}
			})
		}
	}
}

// brokenPipe is a pipe nobody reads.
func brokenPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must.OK(t, err)
	_ = r.Close()
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func number(t *testing.T, url, sql string) (n int) {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(t.Context()) }()
	must.OK(t, conn.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

// A terminal that closes, and a supervisor that signals the process and its
// group, end it with a drain; a log nobody reads does not end it.
func TestSignalsDrain(t *testing.T) {
	beProgram()
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP) // or the program would ignore it, too, where these tests run under nohup
	defer signal.Stop(caught)
	for _, tt := range []struct {
		name    string
		signals []syscall.Signal
		deaf    bool // standard error has lost its reader before
	}{
		{"SIGTERM", []syscall.Signal{syscall.SIGTERM}, false},
		{"SIGTERM twice", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, false},
		{"SIGHUP", []syscall.Signal{syscall.SIGHUP}, false},
		{"SIGTERM after the log lost its reader", []syscall.Signal{syscall.SIGTERM}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := process(t, outboxOf(t), "errors.drain_timeout=1m")
			out := must.Get(cmd.StdoutPipe())(t)
			log := must.Get(cmd.StderrPipe())(t)
			must.OK(t, cmd.Start())
			events, lines := bufio.NewScanner(out), bufio.NewScanner(log)
			for lines.Scan() && !strings.Contains(lines.Text(), `"streaming"`) {
			}
			if !events.Scan() {
				t.Fatal("no event")
			}
			if tt.deaf {
				_ = log.Close()
			}
			for _, s := range tt.signals {
				_ = cmd.Process.Signal(s)
			}
			limit := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
			defer limit.Stop()
			for events.Scan() {
			}
			for !tt.deaf && lines.Scan() {
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v, want a clean stop", err)
			}
		})
	}
}
