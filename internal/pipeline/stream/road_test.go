package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// BenchmarkIntake is the road of a row, in transactions of a hundred.
func BenchmarkIntake(b *testing.B) {
	const rows = 100 // in a transaction
	in, _ := testIntake(b, transform.UpdateWarn)
	d := &deliverer{queue: in.queue, tracker: in.tracker, checkpointer: in.checkpointer}
	msg, end, lsn := insert(10, 0), commit(15), pg.LSN(0)
	var batch []item
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%rows == 0 {
			lsn += 10
		}
		msg.Row.Position = pg.Position{CommitLSN: lsn, Seq: uint32(n % rows)}
		if err := in.accept(b.Context(), msg); err != nil {
			b.Fatal(err)
		}
		if n%rows == rows-1 {
			end.End = lsn + 5
			if err := in.accept(b.Context(), end); err != nil {
				b.Fatal(err)
			}
			batch = in.queue.take(batch)
			d.dealtWith(batch)
		}
	}
}
