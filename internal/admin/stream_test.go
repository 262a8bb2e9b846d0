package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// The verb check finds a pooler that takes replication connections, and cannot
// stream.
func TestCheckStartsAStream(t *testing.T) {
	f := sound(t)
	f.wantCheck("postgresql.stream", OK, "starts")
	f.Source.URL = setting.Secret(pgtest.Pooler(t, f.Source.URL.Reveal()))
	for _, limit := range []time.Duration{time.Minute, time.Second} { // possibly shorter than a question's
		f.Source.LivenessTimeout = limit
		found := f.wantCheck("postgresql.stream", Fail, "no answer from PostgreSQL")
		wantWords(t, found.Remedy, "pgpool-II", "source.mode: poll")
	}
	pgtest.Await(t, f.conn, `SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE database = current_database() AND temporary)`)
}

// The trial does not wait for long transactions, and leaves nothing behind.
func TestTheTrialOfAStreamWaitsForNobody(t *testing.T) {
	f := sound(t)
	writer := f.beside()
	pgtest.Execute(t, writer, "BEGIN", "SELECT pg_current_xact_id()")
	f.wantCheck("postgresql.stream", Skipped, "open transactions")
	pgtest.Await(t, f.conn, `SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE database = current_database() AND temporary)`)
	pgtest.Execute(t, writer, "COMMIT")
	f.wantCheck("postgresql.stream", OK, "starts")
}

// For a slot with a waiting creation, check and status name the cause of the
// wait.
func TestASlotThatIsBeingCreatedIsNamed(t *testing.T) {
	f := sound(t)
	f.exec(`SELECT pg_drop_replication_slot('` + f.Source.Slot + `')`)
	writer := f.beside()
	pgtest.Execute(t, writer, "SET application_name = 'a long report'", "BEGIN", "SELECT pg_current_xact_id()")
	repl := must.Get(catalog.ConnectReplication(f.ctx(), f.Source.URL.Reveal()))(t)
	created := make(chan error, 1)
	go func() {
		defer catalog.Patient(f.ctx(), f.Source.URL.Reveal(), repl, nil)()
		_, _, err := catalog.CreateSlot(f.ctx(), repl, f.Source.Slot, 0, catalog.SlotOptions{})
		created <- err
	}()
	pgtest.Await(t, f.conn, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock')`, int32(repl.PID()))
	found := f.wantCheck("slot", Fail, "a long report")
	wantWords(t, found.Remedy, "pg_terminate_backend")
	report := Status(f.ctx(), f.Config)
	wantWords(t, report.Verdict, "still being created", "a long report")
	if report.Err() == nil {
		t.Error("status is well")
	}
	pgtest.Execute(t, writer, "COMMIT")
	must.OK(t, <-created)
	catalog.Close(repl)
}

// Half of wal_sender_timeout is longer than the server's allowed silence.
func TestCheckComparesTheServersSilence(t *testing.T) {
	f := sound(t)
	f.Source.LivenessTimeout = 10 * time.Second
	found := f.wantCheck("postgresql.wal_sender_timeout", Warn, "source.liveness_timeout")
	wantWords(t, found.Remedy, "30s")
}

// beside is another connection to the database.
func (f *fixture) beside() *pgx.Conn {
	conn := must.Get(pgx.Connect(f.ctx(), f.Source.URL.Reveal()))(f.t)
	f.t.Cleanup(func() { catalog.Close(conn) })
	return conn
}

// wantWords asserts that a text has each of the words.
func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q lacks %q", text, w)
		}
	}
}
