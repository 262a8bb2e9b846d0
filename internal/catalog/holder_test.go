package catalog

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

func TestOldestWriter(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("max_prepared_transactions", "2")) // other tests write in a shared one
	url := server.NewDatabase(t)
	asking := connect(t, url, "CREATE TABLE t (n int)")
	if b, ok, err := ReadOldestWriter(t.Context(), asking); ok || err != nil {
		t.Errorf("%v holds the log back while nobody writes, %v", b, err)
	}
	writer := connect(t, url, "SET application_name = 'import'", "BEGIN", "INSERT INTO t VALUES (1)")
	connect(t, url, "BEGIN", "INSERT INTO t VALUES (2)") // a younger one
	pgtest.Execute(t, asking, "CREATE ROLE plain LOGIN")
	plain := connect(t, url, "SET SESSION AUTHORIZATION plain")
	reader := connect(t, url, "BEGIN", "SELECT count(*) FROM t")
	defer pgtest.Execute(t, reader, "ROLLBACK")
	b, ok, err := ReadOldestWriter(t.Context(), asking)
	if err != nil || !ok || b.PID != int32(writer.PgConn().PID()) || b.Application != "import" || b.Age <= 0 {
		t.Errorf("the oldest is %+v, %v, %v, want the import", b, ok, err)
	}
	if b, ok, err := ReadOldestWriter(t.Context(), plain); err != nil || !ok || b.PID != int32(writer.PgConn().PID()) {
		t.Errorf("for a role without rights the oldest is %+v, %v, %v, want the import", b, ok, err)
	}
	pgtest.Execute(t, writer, "PREPARE TRANSACTION 'p'")
	b, ok, err = ReadOldestWriter(t.Context(), asking)
	if err != nil || !ok || b.PID != 0 {
		t.Errorf("the oldest is %+v, %v, %v, want the prepared one", b, ok, err)
	}
	pgtest.Execute(t, writer, "ROLLBACK PREPARED 'p'")
}

func TestHolderThatHasGone(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t))
	if h := must.Get(ReadHolder(t.Context(), conn, 1<<30))(t); h.String() != "pid 1073741824" {
		t.Errorf("one that has gone is %q", h)
	}
	if h := must.Get(ReadHolder(t.Context(), conn, int32(conn.PgConn().PID())))(t); h.Since == nil || h.User == "" {
		t.Errorf("this session is %+v", h)
	}
}
