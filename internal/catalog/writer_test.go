package catalog

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestOldestWriter(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("max_prepared_transactions", "2")) // other tests write in a shared server
	url := server.NewDatabase(t)
	asking := connect(t, url, "CREATE TABLE t (n int)")
	if list := must.Get(ReadWriters(t.Context(), asking))(t); len(list) > 0 {
		t.Errorf("%+v hold the log back while nobody writes", list)
	}
	writer := connect(t, url, "SET application_name = 'import'", "BEGIN", "INSERT INTO t VALUES (1)", "SAVEPOINT s", "INSERT INTO t VALUES (1)")
	connect(t, url, "BEGIN", "INSERT INTO t VALUES (2)") // a younger transaction
	pgtest.Execute(t, asking, "CREATE ROLE plain LOGIN")
	plain := connect(t, url, "SET SESSION AUTHORIZATION plain")
	reader := connect(t, url, "BEGIN", "SELECT count(*) FROM t")
	defer pgtest.Execute(t, reader, "ROLLBACK")
	list := must.Get(ReadWriters(t.Context(), asking))(t)
	if len(list) != 2 {
		t.Fatalf("%d writers, want two: %+v", len(list), list)
	}
	if b := list[0].Blocker(); b.PID != int32(writer.PgConn().PID()) || b.Application != "import" || b.Age <= 0 {
		t.Errorf("the oldest is %+v, want the import", b)
	}
	if list = must.Get(ReadWriters(t.Context(), plain))(t); list[0].PID != int32(writer.PgConn().PID()) || list[0].Age != nil {
		t.Errorf("for a role without rights the oldest is %+v, want the import, of an unknown age", list[0])
	}
	pgtest.Execute(t, writer, "PREPARE TRANSACTION 'p'")
	if list = must.Get(ReadWriters(t.Context(), asking))(t); list[0].PID != 0 || list[0].GID != "p" {
		t.Errorf("the oldest is %+v, want the prepared one", list[0])
	}
	pgtest.Execute(t, writer, "ROLLBACK PREPARED 'p'")
}
