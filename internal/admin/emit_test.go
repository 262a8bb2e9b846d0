package admin

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// messageFixture is a fixture in message mode, without a table.
func messageFixture(t *testing.T) *fixture {
	t.Helper()
	f := empty(t)
	f.Source.Mode, f.Source.Tables = config.ModeMessage, nil
	return f
}

func soundMessages(t *testing.T) *fixture {
	t.Helper()
	f := messageFixture(t)
	f.setup()
	return f
}

// messages reads n logical messages of the prefix from the slot.
func (f *fixture) messages(n int) (contents [][]byte) {
	f.t.Helper()
	f.streamChanges(func(msg *wal.Message) bool {
		if msg.Kind == wal.LogicalMessage {
			contents = append(contents, bytes.Clone(msg.Content))
		}
		return len(contents) < n
	})
	return contents
}

// The SQL functions write the vectors of internal/base/envelope.
func TestEmitWritesTheVectors(t *testing.T) {
	text := must.Get(os.ReadFile("../../tests/envelope/testdata/vectors.yaml"))(t)
	var vectors []struct {
		Name, ID, AggregateType, AggregateID, Type string
		SQL                                        *bool
		Payload, Headers, Binary                   *string
		Wire                                       string
	}
	must.OK(t, yaml.Unmarshal(text, &vectors))
	f := messageFixture(t)
	f.Event.TombstoneOnEmptyPayload = true // allows a NULL payload
	f.setup()
	var names, want []string
	emit := func(name, sql, wire string, args ...any) {
		if _, err := f.conn.Exec(f.ctx(), sql, args...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		names, want = append(names, name), append(want, strings.Join(strings.Fields(wire), ""))
	}
	for _, v := range vectors {
		if v.SQL != nil && !*v.SQL {
			continue
		}
		if v.Binary != nil {
			emit(v.Name, `SELECT outbox_emit_bytes($1, $2, $3, decode($4, 'hex'), $5, $6)`, v.Wire,
				v.AggregateType, v.AggregateID, v.Type, *v.Binary, v.Headers, v.ID)
			continue
		}
		for _, function := range []string{"outbox_emit", "outbox_emit_text"} {
			emit(v.Name+" by "+function, `SELECT `+function+`($1, $2, $3, $4, $5, $6)`, v.Wire,
				v.AggregateType, v.AggregateID, v.Type, v.Payload, v.Headers, v.ID)
		}
	}
	for i, content := range f.messages(len(want)) {
		if got := hex.EncodeToString(content); got != want[i] {
			t.Errorf("%s:\n%s, want\n%s", names[i], got, want[i])
		}
	}
	if len(want) < 8 {
		t.Errorf("only %d vectors", len(want))
	}
}

func TestEmitReturnsTheEventID(t *testing.T) {
	f := soundMessages(t)
	var first, second string
	err := f.conn.QueryRow(f.ctx(), `SELECT outbox_emit('order', '1', 'Placed', '{}')::text, outbox_emit('order', '1', 'Placed', '{}')::text`).Scan(&first, &second)
	if err != nil || first == second {
		t.Fatalf("ids %s, %s, %v", first, second, err)
	}
	for i, content := range f.messages(2) {
		if id := []string{first, second}[i]; !bytes.Contains(content, []byte(id)) {
			t.Errorf("message %q does not hold the id %s", content, id)
		}
	}
}

func TestEmitRefuses(t *testing.T) {
	f := soundMessages(t)
	for _, tt := range []struct{ call, words string }{
		{`outbox_emit(NULL, '1', 'Placed', '{}')`, "without aggregate_type"},
		{`outbox_emit('', '1', 'Placed', '{}')`, "without aggregate_type"},
		{`outbox_emit('order', '', 'Placed', '{}')`, "without aggregate_id"},
		{`outbox_emit('order', '1', '', '{}')`, "without type"},
		{`outbox_emit('order', '1', 'Placed', NULL)`, "without payload"},
		{`outbox_emit_bytes('order', '1', 'Placed', NULL)`, "without payload"},
		{`outbox_emit('order', '1', 'Placed', '{"broken"')`, "invalid input syntax for type json"},
		{`outbox_emit('order', '1', 'Placed', '{}', '[]')`, "headers are no JSON object"},
		{`outbox_emit('order', '1', 'Placed', '{}', 'null')`, "headers are no JSON object"},
		{`outbox_emit('order', '1', 'Placed', '{}', '{"a": {}}')`, `header "a" is an object or array`},
		{`outbox_emit('order', '1', 'Placed', '{}', '{"a": []}')`, `header "a" is an object or array`},
		{`outbox_emit('order', '1', 'Placed', '{}', '{"id": "x"}')`, `header name "id" is reserved`},
		{`outbox_emit('order', '1', 'Placed', '{}', '{"": "x"}')`, `header name "" is reserved`},
		{`outbox_emit('order', '1', 'Placed', '{}', '{"eventType": "x"}')`, `header name "eventType" is reserved`},
		{`outbox_emit('order', '1', 'Placed', '{}', '{"cdc-lsn": "x"}')`, `header name "cdc-lsn" is reserved`},
	} {
		_, err := f.conn.Exec(f.ctx(), `SELECT `+tt.call)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || !strings.HasPrefix(pg.Code, "22") || !strings.Contains(pg.Message, tt.words) {
			t.Errorf("%s: %v, want %q", tt.call, err, tt.words)
		}
	}
}

// Applications are no superusers, and their search_path is their own.
func TestEmitByAnybody(t *testing.T) {
	f := soundMessages(t)
	t.Cleanup(func() { f.exec(`DROP OWNED BY emit_app`, `DROP ROLE emit_app`) })
	f.exec(`CREATE ROLE emit_app LOGIN PASSWORD 'pw'`,
		`CREATE SCHEMA trap`, `GRANT USAGE ON SCHEMA trap TO emit_app`,
		`CREATE FUNCTION trap.int4send(int) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$`,
		`CREATE FUNCTION trap.pg_logical_emit_message(boolean, text, bytea) RETURNS pg_lsn LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$`,
		`CREATE FUNCTION trap.cat(bytea, bytea) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$`,
		`CREATE OPERATOR trap.|| (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = trap.cat)`)
	conn := must.Get(pgx.Connect(f.ctx(), asRole(f.Source.URL, "emit_app", "pw").Reveal()))(t)
	defer func() { _ = conn.Close(f.ctx()) }()
	for _, sql := range []string{
		`SET search_path = trap, pg_catalog`,
		`SELECT public.outbox_emit('order', '1', 'Placed', '{}', '{"a": "b"}')`,
	} {
		if _, err := conn.Exec(f.ctx(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	f.messages(1)
}

func TestSetupOfMessageMode(t *testing.T) {
	f := messageFixture(t)
	opts := SetupOptions{Schema: SchemaDebezium}
	want := func(functions, rest string) {
		t.Helper()
		f.wantSetup(opts, "function "+functions, "function "+functions, "function "+functions,
			"publication "+rest, "checkpoint ready", "slot "+rest)
		f.wantNothingWrong()
	}
	want("created", "created")
	want("exists", "exists")
	f.Event.TombstoneOnEmptyPayload = true
	f.wantCheck("function outbox_emit", Warn, "other message prefix")
	want("changed", "exists")
	f.Source.MessagePrefix = "Acme.events"
	f.wantCheck("function acme_events_emit", Warn, "does not exist")
	want("created", "exists")
	f.exec(`SELECT acme_events_emit_text('order', '1', 'Placed', 'x')`)
	f.messages(1)
	if status := Status(f.ctx(), f.Config); status.Err() != nil {
		t.Errorf("status: %s", status.Verdict)
	}
	f.wantTeardown("checkpoint dropped", "slot dropped", "publication dropped", "function kept", "function kept", "function kept")
}

// A function with the right body may have wrong attributes, and applications may
// call a function in another schema.
func TestSetupMendsTheFunctions(t *testing.T) {
	f := soundMessages(t)
	const signature = `outbox_emit(text, text, text, jsonb, jsonb, uuid)`
	for name, sql := range map[string][]string{
		"search path":      {`ALTER FUNCTION ` + signature + ` SET search_path = public`},
		"no search path":   {`ALTER FUNCTION ` + signature + ` RESET ALL`},
		"security definer": {`ALTER FUNCTION ` + signature + ` SECURITY DEFINER`},
		"another schema": {`CREATE SCHEMA "My App"`, `ALTER FUNCTION ` + signature + ` SET SCHEMA "My App"`,
			`ALTER FUNCTION "My App".` + signature + ` RESET ALL`},
		"a second one": {`CREATE SCHEMA IF NOT EXISTS app`,
			`CREATE FUNCTION app.outbox_emit(text, text, text, jsonb, jsonb, uuid) RETURNS uuid LANGUAGE sql AS 'SELECT $6'`},
	} {
		t.Run(name, func(t *testing.T) {
			f.exec(sql...)
			t.Cleanup(func() {
				f.exec(`DROP SCHEMA IF EXISTS "My App", app CASCADE`)
				f.setup()
			})
			f.wantCheck("function outbox_emit", Warn, "of another version")
			f.wantSetup(SetupOptions{Schema: SchemaDebezium}, "function changed", "function exists", "function exists",
				"publication exists", "checkpoint ready", "slot exists")
			f.wantNothingWrong()
		})
	}
}

func TestCheckOfMessageMode(t *testing.T) {
	f := messageFixture(t)
	r := Check(f.ctx(), f.Config)
	wantFinding(t, r, "publication", OK, "run will create it")
	f.setup()
	f.exec(`DROP PUBLICATION cdc_outbox`)
	finding := f.wantCheck("checkpoint", Fail, "its messages are kept")
	_, fix, _ := strings.Cut(finding.Remedy, "or: ")
	f.exec(fix)
	f.wantNothingWrong()
}

func TestTailOfMessages(t *testing.T) {
	f := soundMessages(t)
	opts := TailOptions{FromTable: true, Out: io.Discard, Notes: io.Discard}
	wantClass(t, Tail(f.ctx(), f.Config, opts), failure.Config, "source.tables is empty")
	_, err := AcceptGap(f.ctx(), f.Config, GapOptions{Snapshot: true})
	wantClass(t, err, failure.Config, "source.tables is empty")

	var out bytes.Buffer
	done := f.tail(f.ctx(), TailOptions{Limit: 2, Out: &out})
	f.exec(`SELECT pg_logical_emit_message(true, 'other', 'nobody sees this')`,
		`SELECT outbox_emit('order', '7', 'Placed', '{}')`,
		`SELECT pg_logical_emit_message(true, 'outbox', 'no envelope')`)
	must.OK(t, <-done)
	must.Contain(t, out.String(), "outbox.event.order  key 7\n", "unreadable")
	if strings.Contains(out.String(), "nobody") {
		t.Errorf("a message of another prefix: %s", out.String())
	}
}

// A pipeline drained of table rows goes on with messages alone: it keeps the
// slot, and so the events there.
func TestFromATableToMessages(t *testing.T) {
	f := empty(t)
	f.Source.Mode = config.ModeMessage
	f.setup()
	f.save()
	before, _ := f.slot()
	f.exec(`SELECT outbox_emit('order', '7', 'Placed', '{}')`)
	f.Source.Tables = nil
	if err := Status(f.ctx(), f.Config).Err(); failure.ClassOf(err) != failure.Loss {
		t.Errorf("status before: %v", err)
	}
	report, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true})
	if err != nil || report.Slot != "kept" {
		t.Fatalf("%+v, %v", report, err)
	}
	if after, _ := f.slot(); after.ConfirmedFlush != before.ConfirmedFlush {
		t.Errorf("the slot moved from %s to %s", before.ConfirmedFlush, after.ConfirmedFlush)
	}
	f.messages(1)
	if err := Status(f.ctx(), f.Config).Err(); err != nil {
		t.Errorf("status: %v", err)
	}
}

// After the publication was lost, messages are still there: neither status nor
// setup speaks of a loss.
func TestMessagesOutliveThePublication(t *testing.T) {
	f := soundMessages(t)
	f.save()
	f.exec(`SELECT outbox_emit('order', '7', 'Placed', '{}')`, `DROP PUBLICATION cdc_outbox`)
	if err := Status(f.ctx(), f.Config).Err(); failure.ClassOf(err) != failure.Config {
		t.Errorf("status without the publication: %v", err)
	}
	f.setup()
	if err := Status(f.ctx(), f.Config).Err(); err != nil {
		t.Errorf("status after setup: %v", err)
	}
	if got := f.messages(1); !slices.ContainsFunc(got, func(c []byte) bool { return bytes.Contains(c, []byte("Placed")) }) {
		t.Errorf("messages %q", got)
	}
}
