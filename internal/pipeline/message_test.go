package pipeline

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A record of outbox_emit has the same bytes as the record of a row with the same values,
// for each type and each form of payload.
func TestRecordsOfMessagesAreThoseOfRows(t *testing.T) {
	for _, format := range []string{transform.FormatRaw, transform.FormatJSON, transform.FormatJSONExpanded} {
		t.Run(format, func(t *testing.T) {
			db := pgtest.Shared(t).NewDatabase(t)
			cfg := stdoutConfig(db)
			cfg.Source.Mode, cfg.Source.Tables = config.ModeMessage, nil
			cfg.Event.PayloadFormat, cfg.Event.PositionHeaders = format, false
			const columns = "(id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload %s, headers jsonb)"
			payloads := map[string]string{
				"jsonb": `'{"b":   1.50, "a": [null, "ä\u0041"], "b": 2}'`,
				"text":  `E'{"kept":   "as it is"}\n'`,
				"bytea": `'\x00ff10'`,
			}
			for typ := range payloads {
				pgtest.Exec(t, db, "CREATE TABLE box_"+typ+fmt.Sprintf(columns, typ))
				cfg.Source.Tables = append(cfg.Source.Tables, pg.Table{Schema: "public", Name: "box_" + typ})
			}
			if _, err := admin.Setup(t.Context(), &config.Config{Source: cfg.Source, Event: cfg.Event, Sink: cfg.Sink, Checkpoint: cfg.Checkpoint},
				admin.SetupOptions{Schema: admin.SchemaDebezium}); err != nil {
				t.Fatal(err)
			}
			c := start(t, cfg)
			for typ, payload := range payloads {
				function := map[string]string{"jsonb": "outbox_emit", "text": "outbox_emit_text", "bytea": "outbox_emit_bytes"}[typ]
				values := fmt.Sprintf(`'order', 'größe 1', 'Placed', %s, '{"z": "é", "a": 1.50, "n": null}'`, payload)
				const id = "6f1e4c0a-0000-4000-8000-000000000001"
				pgtest.Exec(t, db, fmt.Sprintf(`WITH row AS (INSERT INTO box_%s VALUES ('%s', %s) RETURNING id) SELECT %s(%s, id) FROM row`,
					typ, id, values, function, values))
			}
			await.Until(t, "the events", func() bool { return strings.Count(c.stdout.String(), "\n") == 2*len(payloads) })
			must.OK(t, c.stop())
			lines := strings.Split(strings.TrimSpace(c.stdout.String()), "\n")
			for i := 0; i < len(lines); i += 2 {
				row, message := record(t, lines[i]), record(t, lines[i+1])
				if !reflect.DeepEqual(row, message) {
					t.Errorf("a row became\n%s\na message\n%s", lines[i], lines[i+1])
				}
			}
		})
	}
}

// record is an event as printed, without its origin.
func record(t *testing.T, line string) (event map[string]any) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(line), &event))
	delete(event, "table")
	delete(event, "seq")
	return event
}
