package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// A standby may have a slot of its own, which can be read. A stream would go on
// over the promotion, and then look like that of a standby that was behind: it
// begins after.
func TestStandbyIsReadOncePromoted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	d := p.d
	d.exec("CREATE PUBLICATION cdc_outbox FOR TABLE outbox")
	eventually(t, "the publication", func() bool { return p.s.text("SELECT count(*)::text FROM pg_publication") == "1" })
	made := make(chan error, 1)
	go func() {
		_, err := p.s.conn.Exec(t.Context(), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", d.opts.Slot)
		made <- err
	}()
	eventually(t, "the standby's own slot", func() bool {
		d.exec("SELECT pg_log_standby_snapshot()")
		select {
		case err := <-made:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
			return false
		}
	})
	d.opts.URL = p.s.url
	d.opts.Checkpoint.Store = store.StoreKafka
	i := d.run()
	eventually(t, "a look at the standby", func() bool {
		return matches("is a standby", i.status().PostgresError)
	})
	d.insert(3, 1)
	p.replicate(d.lsn("SELECT pg_current_wal_flush_lsn()::text"))
	p.primary.Stop(t, pgtest.Immediate)
	p.promote()
	i.streams()
	d.arrive()
	d.publish(3, 1)
	i.stop()
	d.insert(3, 1)
	i = d.run()
	d.arrive()
	d.finish(i)
}
