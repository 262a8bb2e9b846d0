package wal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// slots numbers the slots of a test binary: a server's slots share a name space.
var slots atomic.Int64

// source is a database with a publication and a slot, for a single test.
type source struct {
	url     string // for replication connections; may be changed by a test
	sql     *pgx.Conn
	options Options
}

// newSource creates a database, runs statements there, and then creates a publication of
// all tables and a slot.
func newSource(t *testing.T, server *pgtest.Server, statements ...string) *source {
	t.Helper()
	url := server.NewDatabase(t)
	s := &source{
		url: url,
		options: Options{
			Slot:            fmt.Sprintf("stream_%d", slots.Add(1)),
			Publication:     "Öffentlich", // quoted everywhere
			Messages:        true,
			StatusInterval:  50 * time.Millisecond,
			LivenessTimeout: time.Minute,
		},
	}
	s.sql = connect(t, url, statements...)
	s.exec(t, `CREATE PUBLICATION "Öffentlich" FOR ALL TABLES`,
		`SELECT pg_create_logical_replication_slot('`+s.options.Slot+`', 'pgoutput')`)
	return s
}

func (s *source) exec(t *testing.T, statements ...string) {
	t.Helper()
	pgtest.Execute(t, s.sql, statements...)
}

// written is the end of everything committed and flushed by now.
func (s *source) written(t *testing.T) pg.LSN {
	t.Helper()
	var text string
	must.OK(t, s.sql.QueryRow(pgtest.Context(t), `SELECT pg_current_wal_flush_lsn()::text`).Scan(&text))
	return must.Get(pglogrepl.ParseLSN(text))(t)
}

// confirmedFlush is the confirmed position on the server.
func (s *source) confirmedFlush(t *testing.T) pg.LSN {
	t.Helper()
	slot, ok, err := catalog.ReadSlot(pgtest.Context(t), s.sql, s.options.Slot)
	if err != nil || !ok {
		t.Fatalf("read slot: %v, %v", ok, err)
	}
	return slot.ConfirmedFlush
}

// wantConfirmed wants a confirmed position on the server.
func (s *source) wantConfirmed(t *testing.T, want pg.LSN) {
	t.Helper()
	if got := s.confirmedFlush(t); got != want {
		t.Errorf("the server has %s confirmed; want %s", got, want)
	}
}

// await polls a boolean query until true.
func (s *source) await(t *testing.T, query string, args ...any) {
	t.Helper()
	pgtest.Await(t, s.sql, query, args...)
}

// reader is a Stream under test, with its surroundings.
type reader struct {
	*Stream
	closed bool
}

// open streams from start, or from the slot's position if 0, after the end of the walsender
// of an earlier stream.
func (s *source) open(t *testing.T, start pg.LSN) *reader {
	t.Helper()
	s.await(t, `SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1`, s.options.Slot)
	r, err := s.tryOpen(t, start)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return r
}

func (s *source) tryOpen(t *testing.T, start pg.LSN) (*reader, error) {
	t.Helper()
	o := s.options
	if o.Start = start; start == 0 {
		o.Start = s.confirmedFlush(t)
	}
	stream, err := Open(pgtest.Context(t), replication(t, s.url), o)
	if err != nil {
		return nil, err
	}
	r := &reader{Stream: stream}
	t.Cleanup(func() {
		if !r.closed {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = r.Close(ctx)
		}
	})
	return r, nil
}

// close closes the stream, which must succeed.
func (r *reader) close(t *testing.T) {
	t.Helper()
	r.closed = true
	if err := r.Close(pgtest.Context(t)); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// until returns copies of the messages up to the first for which done is true.
func (r *reader) until(t *testing.T, done func(*Message) bool) []Message {
	t.Helper()
	ctx := pgtest.Context(t)
	var out []Message
	for {
		m, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		out = append(out, *m)
		out[len(out)-1].Row.Values = append([]pg.Value(nil), m.Row.Values...)
		if done(m) {
			return out
		}
	}
}

// upTo returns the messages up to the first position at or past end.
func (r *reader) upTo(t *testing.T, end pg.LSN) []Message {
	t.Helper()
	return r.until(t, func(m *Message) bool {
		return (m.Kind == Commit || m.Kind == Keepalive) && m.End >= end
	})
}

// all returns the messages of everything committed by now.
func (r *reader) all(t *testing.T, s *source) []Message {
	t.Helper()
	return r.upTo(t, s.written(t))
}

// untilItFails reads until Next fails and returns the error.
func (r *reader) untilItFails(ctx context.Context) (err error) {
	for err == nil {
		_, err = r.Next(ctx)
	}
	return err
}

// failure is untilItFails for a stream that must fail by itself.
func (r *reader) failure(t *testing.T) error {
	t.Helper()
	ctx := pgtest.Context(t)
	err := r.untilItFails(ctx)
	if errors.Is(err, ctx.Err()) {
		t.Fatalf("the stream did not fail: %v", err)
	}
	return err
}

// failing begins to read, and the channel tells when Next fails. A waiting read finds the
// server's last words.
func (r *reader) failing(t *testing.T) <-chan error {
	t.Helper()
	ctx := pgtest.Context(t)
	failed := make(chan error, 1)
	go func() { failed <- r.untilItFails(ctx) }()
	return failed
}

// lines shows messages as written in tests, without keepalives, and without the ends of
// transactions without a change: PostgreSQL 14 sends them and 15 does not.
func lines(messages []Message) []string {
	var out []string
	var last pg.Position // of a change
	for i := range messages {
		m := &messages[i]
		if m.Kind == Commit && m.Row.Position.CommitLSN != last.CommitLSN {
			continue
		}
		last = m.Row.Position
		switch m.Kind {
		case Insert:
			out = append(out, "insert "+rowText(&m.Row))
		case Update:
			out = append(out, "update "+rowText(&m.Row))
		case Delete:
			out = append(out, "delete "+rowText(&m.Row))
		case Truncate:
			out = append(out, "truncate "+rowText(&m.Row))
		case LogicalMessage:
			kind := "message "
			if m.NonTransactional {
				kind = "loose message "
			}
			out = append(out, kind+m.Prefix+" "+string(m.Content))
		case Commit:
			out = append(out, "commit")
		}
	}
	return out
}

func rowText(r *pg.Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.%s", r.Relation.Namespace, r.Relation.Name)
	for i, v := range r.Values {
		text := string(v.Data)
		switch v.Kind {
		case pg.Null:
			text = "NULL"
		case pg.UnchangedToast:
			text = "unchanged"
		}
		fmt.Fprintf(&b, " %s=%s", r.Relation.Columns[i].Name, text)
	}
	return b.String()
}
