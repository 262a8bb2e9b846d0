package testserver_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// events are those of go test -json.
const events = `
{"Action":"output","Package":"github.com/cdc-outbox/cdc-outbox/sink","Output":"ran against: PostgreSQL 15.18 (local)\n"}
{"Action":"pass","Package":"github.com/cdc-outbox/cdc-outbox/sink","Test":"TestA"}
{"Action":"output","Package":"github.com/cdc-outbox/cdc-outbox/sink","Test":"TestB/x","Output":"    b_test.go:8: tried\n"}
{"Action":"output","Package":"github.com/cdc-outbox/cdc-outbox/sink","Test":"TestB/x","Output":"    b_test.go:9: needs \"x\" \u003e 17\n"}
{"Action":"output","Package":"github.com/cdc-outbox/cdc-outbox/sink","Test":"TestB/x","Output":"--- SKIP: TestB/x (0.00s)\n"}
{"Action":"skip","Package":"github.com/cdc-outbox/cdc-outbox/sink","Test":"TestB/x"}
{"Action":"output","Package":"github.com/cdc-outbox/cdc-outbox/sink","Test":"TestB/y","Output":"    b_test.go:9: needs \"x\" \u003e 17\n"}
{"Action":"skip","Package":"github.com/cdc-outbox/cdc-outbox/sink","Test":"TestB/y"}
{"Action":"pass","Package":"github.com/cdc-outbox/cdc-outbox/sink"}
{"Action":"fail","Package":"github.com/cdc-outbox/cdc-outbox/wal","Test":"TestC"}
{"Action":"output","Package":"github.com/cdc-outbox/cdc-outbox/wal","Test":"TestC","Output":"ran against: PostgreSQL 15.18 (local)\n"}
{"Action":"pass","Package":"github.com/cdc-outbox/cdc-outbox/wal","Test":"TestC"}
{"Action":"output","Package":"github.com/cdc-outbox/cdc-outbox/wal","Output":"ran against: DynamoDB Local none: no Java\n"}
{"Action":"fail","Package":"github.com/cdc-outbox/cdc-outbox/docs"}
`

const lost = `
{"Action":"output","Package":"github.com/cdc-outbox/cdc-outbox/e2e","Test":"TestD","Output":"    d_test.go:9: lost: 3 events\n"}
{"Action":"fail","Package":"github.com/cdc-outbox/cdc-outbox/e2e","Test":"TestD"}
{"Action":"pass","Package":"github.com/cdc-outbox/cdc-outbox/e2e","Test":"TestD"}
`

// The closing lines of a run of tests: the count, the servers, and the reasons
// of everything skipped.
func TestSummary(t *testing.T) {
	script := must.Get(child.Script("summary.awk"))(t)
	for name, tt := range map[string]struct {
		events, want string
		code         int
	}{
		"all kinds": {events, `2 passed, 1 failed, 2 skipped
flaky: wal TestC
ran against DynamoDB Local none: no Java
ran against PostgreSQL 15.18 (local)
skipped: sink TestB: needs "x" > 17 (2 subtests)
`, 0},
		"lost once": {lost, "0 passed, 1 failed, 0 skipped\nwrong at first: e2e TestD\n", 1},
		"nothing":   {"", "0 passed, 0 failed, 0 skipped\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events")
			must.OK(t, os.WriteFile(path, []byte(tt.events), 0o600))
			out, err := exec.CommandContext(t.Context(), "awk", "-f", script, path).Output()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			}
			if string(out) != tt.want || code != tt.code {
				t.Errorf("exit code %d, want %d\n%swant\n%s", code, tt.code, out, tt.want)
			}
		})
	}
}
