package stream

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// A file of the server, here a segment of the log, is away for a while. The slot does not
// report a loss, so nothing is lost.
func TestAMissingFileIsNoLoss(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	d := newDatabase(t, server.NewDatabase(t))
	d.run().streams().stop()
	d.insert(3, 1)
	segment := d.text(`SELECT pg_walfile_name(restart_lsn) FROM pg_replication_slots WHERE slot_name = '` + d.opts.Slot + `'`)
	d.exec(`SELECT pg_switch_wal()`)
	d.exec(`CHECKPOINT`)
	server.Shell(t, "mv pg_wal/"+segment+" pg_wal/away")

	i := d.run()
	eventually(t, "the server's error", func() bool {
		return strings.Contains(i.status().PostgresError, "58P01")
	})
	server.Shell(t, "mv pg_wal/away pg_wal/"+segment)
	i.streams()
	d.arrive()
	d.wantOnce()
	i.stop()
}
