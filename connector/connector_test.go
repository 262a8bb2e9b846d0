package connector_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/connector"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const table = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text DEFAULT 'order',
	aggregateid text DEFAULT '1', type text DEFAULT 'OrderPlaced', payload jsonb DEFAULT '{"total": 5}')`

// stopping ends a connector with the first line on its standard output.
type stopping struct {
	bytes.Buffer
	stop func()
}

func (s *stopping) Write(line []byte) (int, error) {
	s.stop()
	return s.Buffer.Write(line)
}

// The existing row comes first: the slot is created by Run, and the snapshot reads it.
func TestRunPublishesUntilItIsStopped(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, table, `INSERT INTO outbox DEFAULT VALUES`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, log := &stopping{stop: stop}, &bytes.Buffer{}
	err := connector.Run(ctx, connector.Config{
		YAML: []byte("source: {url: '${SHOP}', slot: embedded, publication: embedded, snapshot: initial}\n" +
			"sink: {stdout: {}}\ncheckpoint: {store: postgres}\n"),
		Environ: []string{"SHOP=" + url},
		Set:     []string{"http.listen="},
		Log:     log, Stdout: out,
	})
	must.OK(t, err)
	if connector.ExitCode(err) != 0 || !strings.Contains(out.String(), `OrderPlaced`) || !strings.Contains(log.String(), `"msg"`) {
		t.Errorf("output %q, log\n%s", out, log)
	}
}

func TestRunTellsErrorsApart(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	for name, tt := range map[string]struct{ set, want string }{
		"a setting":               {"source.mode=twice", "must be one of wal, message, poll"},
		"a table that is missing": {"source.tables=public.none", "public.none"},
	} {
		t.Run(name, func(t *testing.T) {
			err := connector.Run(t.Context(), connector.Config{
				Set: []string{"source.url=" + url, "http.listen=", "source.slot=apart", "source.publication=apart", "sink.stdout=true", tt.set},
				Log: &bytes.Buffer{},
			})
			if connector.ExitCode(err) != 2 || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("exit code %d, remedy %q: %v", connector.ExitCode(err), connector.Remedy(err), err)
			}
		})
	}
}
