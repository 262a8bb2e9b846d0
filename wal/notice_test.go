package wal

import (
	"slices"
	"strconv"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// The server sends notices in their place, between rows with their numbers
// without notices, also when a row waits for more of its place in the log.
func TestStreamTellsNotices(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	s.options.Messages = false
	read := func() (rows []string) {
		r := s.open(t, 0)
		for _, m := range r.all(t, s) {
			if m.Kind == Insert {
				rows = append(rows, rowText(&m.Row)+" "+strconv.Itoa(int(m.Row.Position.Seq)))
			}
		}
		r.close(t)
		return rows
	}
	s.exec(t, "BEGIN", "INSERT INTO t VALUES (1)", "SELECT pg_logical_emit_message(true, 'cdc-outbox', 'within')",
		"SELECT pg_logical_emit_message(true, 'other', 'x')", "SAVEPOINT s", "INSERT INTO t VALUES (2), (3)", "COMMIT")
	must.OK(t, catalog.EmitNotice(pgtest.Context(t), s.sql, []byte("alone")))
	s.exec(t, "INSERT INTO t VALUES (4)")

	without := read()
	var told []string
	s.options.Notice = func(content []byte) { told = append(told, string(content)) }
	if with := read(); !slices.Equal(with, without) || len(with) != 4 {
		t.Errorf("rows %q, without notices %q", with, without)
	}
	if want := []string{"within", "alone"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
