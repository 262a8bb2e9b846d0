package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// An idle look is a single question: slot and end of the log come together, and all else is as
// before. A process has many pipelines.
func TestIdleLookIsASingleQuestion(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t) // of its own: nobody else has transactions
	d := newDatabase(t, server.NewDatabase(t))
	d.limits.monitor = 50 * time.Millisecond
	i := d.run().streams()
	d.publish(3, 1)
	inARow, last := 0, ""
	eventually(t, "ten looks in a row of a single question", func() bool {
		var at, query string
		must.OK(t, d.conn.QueryRow(t.Context(), `
			SELECT COALESCE(query_start::text, ''), query FROM pg_stat_activity
			 WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()`).Scan(&at, &query))
		switch {
		case at == last, strings.Contains(query, "pg_locks"): // at a few looks, for spares
		case strings.Contains(query, "pg_replication_slots") && strings.Contains(query, "pg_current_snapshot"):
			inARow++
		default:
			inARow = 0
		}
		last = at
		return inARow == 10
	})
	d.finish(i)
}

// A checkpoint saved after the question for slot and end of the log is behind that end. The look
// is no alarm: the server has not fallen behind.
func TestCheckpointMaySurpassALook(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgtest.Shared(t).NewDatabase(t))
	d.limits.monitor = time.Hour
	i := d.run().streams()
	d.publish(1, 1)
	conn := must.Get(catalog.Connect(t.Context(), d.opts.URL))(t)
	defer catalog.Close(conn)
	var view catalog.View
	must.OK(t, view.ReadSlot(t.Context(), conn, i.source.names()))
	before := d.lsn("SELECT pg_current_wal_flush_lsn()")
	d.publish(3, 1)
	eventually(t, "a later checkpoint", func() bool { return i.source.checkpointer.confirmed() > before })
	end := must.Get(i.source.check(t.Context(), conn, &view, d.store.stored()))(t)
	if end <= before {
		t.Errorf("the log ends at %s, want behind %s", end, before)
	}
	d.finish(i)
}
