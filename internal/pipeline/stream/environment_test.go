package stream

import "testing"

// PostgreSQL 17 ends transactions after transaction_timeout, also a walsender's while
// decoding a transaction, and a snapshot's.
func TestTransactionTimeoutEndsNoStream(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		d := sharedDatabase(t)
		if d.text("SELECT (current_setting('server_version_num')::int >= 170000)::text") != "true" {
			t.Skip("there is no transaction_timeout before PostgreSQL 17")
		}
		d.opts.Snapshot = snapshot
		if !snapshot {
			d.run().streams().stop()
		}
		const n = 100_000
		d.insert(n, n)
		d.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET transaction_timeout = ''100ms''', current_database()); END $$`)
		i := d.run().streams()
		d.arrive()
		d.wantOnce()
		i.stop()
		if r := i.metrics.reconnected(); r > 0 {
			t.Errorf("snapshot %v: %d reconnects", snapshot, r)
		}
	}
}
