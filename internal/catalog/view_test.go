package catalog

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// A later view repeats no question about publication and tables while no transaction ends.
// A change that was not committed at the earlier view, or came later, is seen.
func TestALaterViewAsksNothingTwiceAndMissesNoChange(t *testing.T) {
	server := pgtest.Start(t) // of its own: nobody else has transactions
	url := server.NewDatabase(t)
	conn, other := connect(t, url), connect(t, url)
	pgtest.Execute(t, conn, `CREATE TABLE outbox (id int)`, `CREATE PUBLICATION p FOR TABLE outbox`)
	from := Source{Slot: "viewed", Publication: "p", Tables: []pg.Table{outbox}}
	var before *View
	look := func() *View {
		t.Helper()
		v := new(View)
		must.OK(t, v.ReadPublicationSince(pgtest.Context(t), conn, from, before))
		return v
	}
	before = look()
	still := look()
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
