package wal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgerrcode"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// The tests of confirmed positions, and of the beginning of a stream.

func TestStreamGoesOnAfterTheConfirmedEnd(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	s.exec(t, `INSERT INTO t VALUES (1)`, `INSERT INTO t VALUES (2)`)
	r := s.open(t, 0)
	first := commitOf(t, r.upToCommit(t))
	r.Confirm(first.End)
	r.close(t)
	s.wantConfirmed(t, first.End)
	r = s.open(t, 0)
	wantLines(t, r.all(t, s), []string{"insert public.t id=2", "commit"})
	r.close(t)
}

// The commit's own position is not enough (docs/internals/DESIGN.md, invariant 1).
func TestStreamResendsAfterTheCommitLSN(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	s.exec(t, `INSERT INTO t VALUES (1)`)
	r := s.open(t, 0)
	first := commitOf(t, r.upToCommit(t))
	r.Confirm(first.Row.Position.CommitLSN)
	r.close(t)
	r = s.open(t, 0)
	again := r.all(t, s)
	wantLines(t, again, []string{"insert public.t id=1", "commit"})
	if c := commitOf(t, again); c.Row.Position.CommitLSN != first.Row.Position.CommitLSN || c.End != first.End {
		t.Errorf("resent as %+v; first sent as %+v", c, first)
	}
	r.close(t)
}

func TestStreamStartsAtAStoredPosition(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	s.exec(t, `INSERT INTO t VALUES (1)`, `INSERT INTO t VALUES (2)`)
	r := s.open(t, 0)
	first := commitOf(t, r.upToCommit(t))
	r.close(t) // the server was told nothing
	r = s.open(t, first.End)
	wantLines(t, r.all(t, s), []string{"insert public.t id=2", "commit"})
	r.close(t)
}

// PostgreSQL believes any position, so nothing beyond the sent position may be confirmed, or
// the next events are lost (docs/internals/DESIGN.md, invariant 3).
func TestStreamNeverConfirmsBeyondWhatItReceived(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	r := s.open(t, 0)
	r.Confirm(1 << 60)
	s.exec(t, `INSERT INTO t VALUES (1)`)
	r.upToCommit(t)
	s.exec(t, `INSERT INTO t VALUES (2)`) // not read
	received := r.Received()
	r.close(t)
	s.wantConfirmed(t, received)
	r = s.open(t, 0)
	wantLines(t, r.all(t, s), []string{"insert public.t id=2", "commit"})
	r.close(t)
}

func TestStreamConfirmsNothingByItself(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	start := s.confirmedFlush(t)
	r := s.open(t, 0)
	s.exec(t, `INSERT INTO t VALUES (1)`)
	end := commitOf(t, r.all(t, s)).End
	// The server shows the write position told: the row is written.
	s.await(t, `SELECT coalesce(write_lsn >= $1::text::pg_lsn, false) FROM pg_stat_replication r
		JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE slot_name = $2`, end.String(), s.options.Slot)
	s.wantConfirmed(t, start)
	r.close(t)
	s.wantConfirmed(t, start)
}

// Failure mode 23: the slot follows a log without anything for us.
func TestStreamAdvancesIdleSlot(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`, `CREATE UNLOGGED TABLE other (id int)`)
	s.exec(t, `ALTER PUBLICATION "Öffentlich" RENAME TO "all"`, `CREATE TABLE busy (id int, v text)`,
		`CREATE PUBLICATION "Öffentlich" FOR TABLE t`, `SELECT pg_replication_slot_advance('`+s.options.Slot+`', pg_current_wal_lsn())`)
	r := s.open(t, 0)
	for range 3 {
		s.exec(t, `INSERT INTO busy SELECT g, repeat('x', 1000) FROM generate_series(1, 500) g`)
		written := s.written(t)
		for _, m := range r.upTo(t, written) {
			if m.Kind == Insert {
				t.Fatalf("a row of %s", m.Row.Relation.Name)
			}
			r.Confirm(m.End)
		}
		s.await(t, `SELECT confirmed_flush_lsn >= $1::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`,
			written.String(), s.options.Slot)
	}
	s.exec(t, `INSERT INTO t VALUES (1)`)
	wantLines(t, r.all(t, s), []string{"insert public.t id=1", "commit"})
	r.close(t)
}

// Failure mode 9.
func TestOpenWhereTheSlotIsActive(t *testing.T) {
	s := newSource(t, pgtest.Shared(t))
	r := s.open(t, 0)
	if _, err := s.tryOpen(t, 0); !errors.Is(err, catalog.ErrSlotActive) {
		t.Errorf("second Open: %v; want %q", err, catalog.ErrSlotActive)
	}
	r.close(t)
	s.open(t, 0).close(t)
}

func TestOpenClosesTheConnectionWhenItFails(t *testing.T) {
	s := newSource(t, pgtest.Shared(t))
	s.options.Slot = "missing"
	s.options.Start = 1
	if _, err := s.tryOpen(t, 1); pgsql.State(err) != pgerrcode.UndefinedObject {
		t.Errorf("Open: %v", err)
	}
	s.await(t, `SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = current_database()`)
}

func TestOpenEndsWithItsContext(t *testing.T) {
	s := newSource(t, pgtest.Shared(t))
	conn := replication(t, s.url)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("not any more")
	cancel(reason)
	if _, err := Open(ctx, conn, s.options); !errors.Is(err, reason) {
		t.Errorf("Open: %v; want the context's cause", err)
	}
}

// upToCommit returns the messages up to the end of the next transaction.
func (r *reader) upToCommit(t *testing.T) []Message {
	t.Helper()
	return r.until(t, func(m *Message) bool { return m.Kind == Commit })
}

// commitOf returns the last transaction's end.
func commitOf(t *testing.T, messages []Message) Message {
	t.Helper()
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Kind == Commit {
			return messages[i]
		}
	}
	t.Fatal("no transaction")
	return Message{}
}

// The server decides: a streaming walsender has a priority if, and only if, the setting
// includes it.
func TestSyncStandbys(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("synchronous_commit", "local"))
	for _, tt := range []struct{ setting, application string }{
		{"", "cdc-outbox"},
		{"*", "cdc-outbox"},
		{`"*"`, "cdc-outbox"},
		{"a, b", "cdc-outbox"},
		{`a, "cdc-outbox"`, "cdc-outbox"},
		{`"CDC-Outbox"`, "cdc-outbox"},
		{`a, "cdc-outbox-2"`, "cdc-outbox"},
		{`"first"`, "first"},
		{"FIRST 1 (a, b)", "first"},
		{"FIRST 1 (*)", "first"},
		{"FIRST 2 (a, Connector)", "connector"},
		{"ANY 1 (a, b, *)", "connector"},
		{"any 1 (a, b)", "any"},
		{"1 (a, b)", "b"},
		{"2 (a, b)", "2"},
		{`"a ""b"" (c), d", e`, `a "b" (c), d`},
		{`"(x"`, "x"},
	} {
		t.Run(fmt.Sprintf("%s of %s", tt.application, tt.setting), func(t *testing.T) {
			s := newSource(t, server)
			u := must.Get(url.Parse(s.url))(t)
			query := u.Query()
			query.Set("application_name", tt.application)
			u.RawQuery = query.Encode()
			s.url, s.sql = u.String(), connect(t, u.String())
			s.exec(t, `ALTER SYSTEM SET synchronous_standby_names = `+pgsql.Literal(tt.setting), `SELECT pg_reload_conf()`)
			s.await(t, `SELECT current_setting('synchronous_standby_names') = $1`, tt.setting)
			stream := s.open(t, 0)
			s.await(t, `SELECT count(flush_lsn) = 1 FROM pg_stat_replication r JOIN pg_replication_slots ON active_pid = pid
				WHERE slot_name = $1 AND r.state = 'streaming'`, s.options.Slot)
			var priority int
			if err := s.sql.QueryRow(pgtest.Context(t), `SELECT sync_priority FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid
				WHERE slot_name = $1`, s.options.Slot).Scan(&priority); err != nil {
				t.Fatal(err)
			}
			stream.close(t)
			got := must.Get(catalog.ReadSyncStandbys(pgtest.Context(t), s.sql))(t)
			if got.Ours() != (priority > 0) {
				t.Errorf("%+v: we say %v, the server gives it priority %d", got, got.Ours(), priority)
			}
		})
	}
}
