package catalog

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestReadInstance(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	read := func(conn *pgconn.PgConn) Instance {
		t.Helper()
		i, err := ReadInstance(pgtest.Context(t), conn)
		if err != nil || i.Started == "" || i.InRecovery {
			t.Errorf("%+v, %v", i, err)
		}
		return i
	}
	here := read(connect(t, url).PgConn())
	if got := read(replication(t, url)); got != here {
		t.Errorf("%+v on a replication connection, %+v on another", got, here)
	}
	other := pgtest.Start(t)
	if got := read(connect(t, other.NewDatabase(t)).PgConn()); got == here {
		t.Errorf("two servers are both %+v", got)
	}
}

// Everything committed before the slot's first position is in the snapshot, and
// nothing later. The exporting connection goes on, and the snapshot is still
// readable.
func TestHeldSnapshot(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	conn := connect(t, url, `CREATE TABLE outbox (id int PRIMARY KEY)`, `INSERT INTO outbox VALUES (1), (2)`)
	repl := replication(t, url)
	consistent, name, err := CreateSlot(pgtest.Context(t), repl, "held", 140000, SlotOptions{Temporary: true, ExportSnapshot: true})
	must.OK(t, err)
	held := must.Get(HoldSnapshot(pgtest.Context(t), url, name))(t)
	defer held.Release()
	must.Get(Identify(pgtest.Context(t), repl))(t)
	pgtest.Execute(t, conn, `INSERT INTO outbox VALUES (3)`)
	want := []string{consistent.String() + "/0 t:1", consistent.String() + "/1 t:2"}
	for range 2 { // more than a single table may be read
		if got := readAll(t, conn, held.Name, pg.Position{CommitLSN: consistent}); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, err := HoldSnapshot(pgtest.Context(t), url, name); err == nil {
		t.Error("held a snapshot that is gone")
	}
}
