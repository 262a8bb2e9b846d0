package stream

import (
	"strconv"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A database in SQL_ASCII takes any byte. A row whose event type, which becomes a
// header, is no UTF-8 is a bad event, and the only one, in the stream as in a
// snapshot.
func TestBytesOfNoEncoding(t *testing.T) {
	server := pgtest.Shared(t)
	for i, snapshot := range []bool{false, true} {
		name := "no_encoding_" + strconv.Itoa(i)
		server.Exec(t, `CREATE DATABASE `+name+` ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
		d := newDatabase(t, server.URL(name))
		d.opts.OnBadEvent = transform.BadEventSkip
		d.opts.Snapshot = snapshot
		if !snapshot {
			d.run().streams().stop()
		}
		d.insert(2, 1)
		d.exec(`INSERT INTO outbox VALUES ('bad', 'order', 'o', E'Placed \xff', '{}')`)
		d.insert(2, 1)
		in := d.run().streams()
		d.arrive()
		d.wantOnce()
		in.stop()
		in.metrics.locked(func() {
			if len(in.metrics.skipped) != 1 {
				t.Errorf("snapshot %v: skipped %v, want one event", snapshot, in.metrics.skipped)
			}
		})
	}
}
