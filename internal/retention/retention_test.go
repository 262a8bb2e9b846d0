package retention_test

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestRowsGoWhenOldAndConfirmed(t *testing.T) {
	k := start(t, outbox.Schema)
	k.insert("old", "1 hour")
	k.insert("young", "-1 hour")

	k.passes(2)
	if got := k.count("TRUE"); got != 2 {
		t.Fatalf("%d rows left, want 2: nothing is confirmed", got)
	}
	k.await("the old row to go", func() bool { k.confirmAll(); return k.count("type = 'old'") == 0 })
	k.await("word of it", func() bool { return k.observer.deleted.Load() > 0 })
	k.passes(2)
	if got := k.count("type = 'young'"); got != 1 {
		t.Error("the young row went")
	}
	if got := k.observer.deleted.Load(); got != 1 {
		t.Errorf("told of %d rows, want 1", got)
	}
}

func TestLockedRowsAreLeftForLater(t *testing.T) {
	k := start(t, outbox.Schema)
	k.insert("locked", "1 hour")
	k.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload, created_at)
		SELECT 'a', n::text, 'free', to_jsonb(repeat('x', 1500)), now() - interval '1 hour' FROM generate_series(1, 500) n`)
	tx, err := k.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM outbox WHERE type = 'locked' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	k.confirmAll()
	k.await("a failed pass", func() bool { return k.observer.failed.Load() > 0 })
	k.await("the rows on other pages to go", func() bool { k.confirmAll(); return k.count("TRUE") < 200 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.await("all rows to go", func() bool { k.confirmAll(); return k.count("TRUE") == 0 })
}

func TestConnectionIsOpenedAgain(t *testing.T) {
	k := start(t, outbox.Schema)
	k.passes(1)
	k.insert("old", "1 hour")
	if _, err := k.conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'cdc-outbox'`); err != nil {
		t.Fatal(err)
	}
	k.await("the row to go", func() bool { k.confirmAll(); return k.count("TRUE") == 0 })
}

func TestFailureNamesTheRemedy(t *testing.T) {
	k := startWith(t, outbox.Schema, func(o *retention.Parts) { o.Column = "written_at" })
	k.insert("old", "1 hour")
	k.await("a failed pass", func() bool { k.confirmAll(); return k.observer.failed.Load() > 0 })
	if err := k.observer.last(); !strings.Contains(failure.RemedyOf(err), "retention.column") {
		t.Errorf("failed with %v, remedy %q", err, failure.RemedyOf(err))
	}
}
