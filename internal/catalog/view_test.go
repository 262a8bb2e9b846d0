package catalog

import (
	"context"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// A later view repeats no question about publication and tables while no transaction ends.
// A change that was not committed at the earlier view, or came later, is seen.
func TestALaterViewAsksNothingTwiceAndMissesNoChange(t *testing.T) {
	server := pgtest.Start(t) // of its own: nobody else has transactions
	t.Run("few questions", func(t *testing.T) {
		url := server.NewDatabase(t)
		laterViews(t, connect(t, url), connect(t, url))
	})
	t.Run("a watch", func(t *testing.T) { // a plan for all looks hides nothing
		url := server.NewDatabase(t)
		laterViews(t, watch(t, url), connect(t, url))
	})
}

// watch opens a connection of ConnectWatch for a single test.
func watch(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := must.Get(ConnectWatch(pgtest.Context(t), url, nil))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// laterViews are those on conn, while other changes the publication.
func laterViews(t *testing.T, conn, other *pgx.Conn) {
	t.Helper()
	pgtest.Execute(t, other, `CREATE TABLE outbox (id int)`, `CREATE PUBLICATION p FOR TABLE outbox`)
	from := Source{Slot: "viewed", Publication: "p", Tables: []pg.Table{outbox}}
	var before *View
	look := func() *View {
		t.Helper()
		v := new(View)
		must.OK(t, v.ReadSlot(pgtest.Context(t), conn, from))
		must.OK(t, v.ReadPublicationSince(pgtest.Context(t), conn, from, before, 0))
		return v
	}
	before = look()
	still := new(View)
	must.OK(t, still.ReadSlot(pgtest.Context(t), conn, from))
	must.OK(t, still.ReadPublicationSince(pgtest.Context(t), nil, from, before, 0)) // no question without a connection
	if &still.Tables[0] != &before.Tables[0] || still.Fingerprint != before.Fingerprint || still.End < before.End || still.Flushed == 0 {
		t.Fatalf("read again, or otherwise: %+v, before %+v", still, before)
	}

	pgtest.Execute(t, other, `BEGIN`, `ALTER PUBLICATION p SET (publish = 'insert')`)
	before = look() // the change has an id already
	pgtest.Execute(t, other, `COMMIT`)
	after := look()
	if !before.Publication.Update || after.Publication.Update {
		t.Errorf("a change under way at the earlier view: %+v, before %+v", after.Publication, before.Publication)
	}

	before = look()
	pgtest.Execute(t, other, `ALTER PUBLICATION p DROP TABLE outbox`)
	if after := look(); len(after.Publication.Tables) != 0 || after.Unfit() == nil {
		t.Errorf("a later change: %+v", after.Publication)
	}
}

// The slot is read with the end of the log, so a position reached since is behind this end. The
// end is read anew then: otherwise the server would look as fallen behind the checkpoint.
func TestAViewsEndIsNotBeforeAKnownPosition(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	conn, other := connect(t, url), connect(t, url)
	pgtest.Execute(t, conn, `CREATE TABLE outbox (id int)`, `CREATE PUBLICATION p FOR TABLE outbox`)
	from := Source{Slot: "viewed_later", Publication: "p", Tables: []pg.Table{outbox}}
	v := new(View)
	must.OK(t, v.ReadSlot(pgtest.Context(t), conn, from))
	if v.Exists {
		t.Error("a missing slot exists")
	}
	pgtest.Execute(t, other, `INSERT INTO outbox VALUES (1)`)
	known := must.Get(ReadFlushed(pgtest.Context(t), other))(t)
	must.OK(t, v.ReadPublicationSince(pgtest.Context(t), conn, from, nil, known))
	if v.Begin < known || v.Flushed < known {
		t.Errorf("the log ends at %s, on disk at %s, although it had reached %s", v.Begin, v.Flushed, known)
	}

	pgtest.Execute(t, other, `SELECT pg_create_logical_replication_slot('viewed_later', 'pgoutput')`)
	must.OK(t, v.ReadSlot(pgtest.Context(t), conn, from))
	slot, exists, err := ReadSlot(pgtest.Context(t), conn, from.Slot)
	if must.OK(t, err); !exists || !v.Exists || !reflect.DeepEqual(v.Slot, slot) {
		t.Errorf("the view has the slot %+v, %t, want %+v", v.Slot, v.Exists, slot)
	}
}

// The server plans a statement of a watch once, for all looks.
func TestStatementsOfAWatchArePlannedOnce(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	connect(t, url, `CREATE TABLE outbox (id int)`, `CREATE PUBLICATION p FOR TABLE outbox`)
	conn := watch(t, url)
	from := Source{Slot: "watched", Publication: "p", Tables: []pg.Table{outbox}}
	const looks = 3
	for range looks {
		v := new(View)
		must.OK(t, v.ReadSlot(pgtest.Context(t), conn, from))
		must.OK(t, v.ReadPublication(pgtest.Context(t), conn, from))
	}
	type counted struct {
		Statement       string
		Generic, Custom int
	}
	rows, _ := conn.Query(pgtest.Context(t), "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements", pgx.QueryExecModeSimpleProtocol)
	kept := must.Get(pgx.CollectRows(rows, pgx.RowToStructByPos[counted]))(t)
	if len(kept) < 4 { // for slot, end of the log, publication and tables
		t.Errorf("the server keeps %d statements", len(kept))
	}
	for _, one := range kept {
		if one.Generic < looks || one.Custom != 0 {
			t.Errorf("planned %d times anew, and used %d times:\n%s", one.Custom, one.Generic, one.Statement)
		}
	}
}
