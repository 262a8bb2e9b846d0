package retention_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// TestHorizonThatIsTooOldTellsNothing: half the transaction ids later, a horizon
// looks younger than all rows.
func TestHorizonThatIsTooOldTellsNothing(t *testing.T) {
	a := newAged(t)
	a.exec(insertLate)
	a.reset("-e", "1") // there must have been as many
	for _, age := range []int64{1<<31 - 1, 1 << 31, 1<<31 + 1000, 3 << 30, 1 << 32} {
		if n := a.pass(a.nextXID() - age); n != 0 {
			t.Fatalf("a row went, by a horizon of %d transactions ago", age)
		}
	}
	if n := a.pass(a.nextXID()); n != 1 {
		t.Errorf("%d rows went, want 1", n)
	}
}

// TestRowsOfAllAgesGo whatever the apparent age of the writing transaction.
func TestRowsOfAllAgesGo(t *testing.T) {
	a := newAged(t)
	a.exec(insertLate)
	const step = 1_400_000_000 // less than 2^31, as freezing must come in between
	for n := range int64(2) {
		a.freeze()
		a.reset("-x", fmt.Sprint((n+1)*step), "-u", fmt.Sprint(n*step+3))
	}
	if apparent := a.value(`SELECT age(xmin) FROM outbox`); apparent > 0 {
		t.Fatalf("the row's age appears to be %d", apparent)
	}
	if n := a.pass(a.nextXID()); n != 1 {
		t.Errorf("%d rows went, want 1", n)
	}
}

// aged is a server whose transaction ids can be set.
type aged struct {
	kept
	server *pgtest.Server
	url    string
}

func newAged(t *testing.T) *aged {
	t.Helper()
	server := pgtest.Start(t)
	if !server.Has("pg_resetwal") {
		t.Skip("the downloaded binaries have no pg_resetwal")
	}
	url := server.NewDatabase(t)
	pgtest.Exec(t, url, outbox.Schema)
	return &aged{kept: kept{t: t, conn: connect(t, url)}, server: server, url: url}
}

// reset stops the server and has pg_resetwal change the control file.
func (a *aged) reset(args ...string) {
	a.t.Helper()
	script := "pg_resetwal -D . " + strings.Join(args, " ")
	if args[0] == "-x" {
		script += "\n" + commitLog(a.t, args[1])
	}
	a.server.Stop(a.t, pgtest.Fast)
	a.server.BeforeStart(a.t, script)
	a.server.Resume(a.t)
	a.conn = connect(a.t, a.url)
}

// commitLog is the command for the commit log's file from xid on, with no committed
// transaction. (pg_resetwal's documentation wants the file to exist.)
func commitLog(t *testing.T, xid string) string {
	t.Helper()
	const perFile, fileSize = 32 * 8192 * 4, 32 * 8192
	var n int64
	must.Get(fmt.Sscan(xid, &n))(t)
	return fmt.Sprintf("head -c %d /dev/zero >pg_xact/%04X", fileSize, n/perFile)
}

// freeze makes all rows of the server independent of their writers' ids.
func (a *aged) freeze() {
	a.t.Helper()
	a.exec(`UPDATE pg_database SET datallowconn = true`)
	for _, database := range []string{"postgres", "template0", "template1"} {
		pgtest.Exec(a.t, a.server.URL(database), `VACUUM (FREEZE)`)
	}
	a.exec(`VACUUM (FREEZE)`)
}

func (a *aged) nextXID() int64 {
	return a.value(`SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`)
}

// pass makes a single pass through the table and returns the number of deleted rows.
func (a *aged) pass(xmin int64) int64 {
	a.t.Helper()
	n := must.Get(retention.DeleteRows(a.t.Context(), a.conn, retention.Parts{
		Tables:   []pg.Table{{Schema: "public", Name: "outbox"}},
		Options:  retention.Options{After: time.Hour, Column: "created_at"},
		Observer: &observer{},
		Log:      zaptest.NewLogger(a.t),
	}, xmin))(a.t)
	return n
}
