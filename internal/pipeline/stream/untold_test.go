package stream

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// untoldSwaps are ways for another table to take the outbox's name, perhaps untold by a
// stream that has announced the table.
var untoldSwaps = map[string]struct {
	before, other, swap string
	told                int // the first version whose stream tells
}{
	"schemas change places": {
		before: `CREATE SCHEMA app; CREATE SCHEMA next; ALTER TABLE outbox SET SCHEMA app; CREATE TABLE next.outbox (LIKE app.outbox INCLUDING ALL)`,
		other:  `next.outbox`,
		swap:   `ALTER SCHEMA app RENAME TO old; ALTER SCHEMA next RENAME TO app`,
		told:   160000,
	},
	"a partitioned table": {
		before: `CREATE SCHEMA app; ALTER TABLE outbox SET SCHEMA app; CREATE TABLE app.staged (LIKE app.outbox) PARTITION BY HASH (id); CREATE TABLE app.staged_0 PARTITION OF app.staged FOR VALUES WITH (MODULUS 1, REMAINDER 0)`,
		other:  `app.staged`,
		swap:   `ALTER TABLE app.outbox RENAME TO outbox_old; ALTER TABLE app.staged RENAME TO outbox`,
		told:   1000000,
	},
}

const forAllByRoot = `CREATE PUBLICATION cdc_outbox FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`

// Failure mode 125. Another table takes the outbox's name, and the stream goes on under
// the name shown before. Events from in between are either published or a loss, also after
// a restart, and never passed over in silence.
func TestATableThatTakesTheNameUntold(t *testing.T) {
	t.Parallel()
	for name, c := range untoldSwaps {
		start := func(t *testing.T, looks time.Duration) (*database, *instance) {
			d := outbox(t)
			d.exec(c.before + `; ` + forAllByRoot)
			d.opts.Tables[0].Schema = "app"
			d.exec(`SET search_path = app`)
			d.limits.monitor = looks
			i := d.run().streams()
			d.publish(2, 1)
			return d, i
		}
		shown := func(d *database) { // of the other table
			d.exec(`INSERT INTO ` + c.other + ` VALUES ('other', 'order', 'o', 'Placed', '{}')`)
			d.publish(1, 1)
		}
		// Before a look can tell.
		swapped := func(d *database) {
			d.exec(`BEGIN; ` + c.swap + `; INSERT INTO app.outbox VALUES ('swapped', 'order', 'o', 'Placed', '{}'); COMMIT`)
			d.ids = append(d.ids, "swapped")
		}
		told := func(d *database) bool {
			return must.Get(strconv.Atoi(d.text("SHOW server_version_num")))(d.t) >= c.told
		}
		judge := func(t *testing.T, d *database, i *instance) {
			t.Helper()
			if told(d) {
				d.arrive()
				d.finish(i)
				return
			}
			const text = `table app.outbox is another one than before`
			i.wantEnd(failure.Loss, text)
			d.run().wantEnd(failure.Loss, `not accepted yet: .*`+text)
		}
		t.Run(name, func(t *testing.T) {
			t.Run("while it reads", func(t *testing.T) {
				d, i := start(t, 100*time.Millisecond)
				shown(d)
				swapped(d)
				judge(t, d, i)
			})
			t.Run("before a stop", func(t *testing.T) {
				d, i := start(t, time.Hour)
				shown(d)
				swapped(d)
				if told(d) {
					d.arrive()
					d.finish(i)
					return
				}
				d.passes("what was swapped")
				i.stop()
				d.run().wantEnd(failure.Loss, `not accepted yet: table app.outbox is another one than before`)
			})
			t.Run("while stopped", func(t *testing.T) {
				d, i := start(t, 100*time.Millisecond)
				i.stop()
				d.exec(`INSERT INTO ` + c.other + ` VALUES ('other', 'order', 'o', 'Placed', '{}')`)
				swapped(d)
				judge(t, d, d.run())
			})
			t.Run("and was not shown before", func(t *testing.T) {
				d, i := start(t, 100*time.Millisecond)
				swapped(d)
				d.publish(2, 1)
				i.stop()
				i = d.run().streams()
				d.publish(1, 1)
				d.finish(i)
			})
			t.Run("long after it was shown", func(t *testing.T) {
				d, i := start(t, 100*time.Millisecond)
				shown(d)
				before := d.lsn("SELECT pg_current_wal_flush_lsn()")
				eventually(t, "two looks behind it", func() bool { return i.looked() > before })
				d.exec(`BEGIN; ` + c.swap + `; COMMIT`)
				renamed := d.text(`SELECT 'app.outbox'::regclass::oid::text`)
				eventually(t, "the table to be known", func() bool {
					owned := d.store.stored().Owned
					return len(owned) > 1 && strconv.Itoa(int(owned[1].OID)) == renamed
				})
				d.insert(2, 1)
				d.last()
				d.finish(i)
			})
		})
	}
}

// Failure mode 126. A loss is reported at each start until accepted, although nothing else
// tells any more.
func TestALossThatIsFoundWhileItRunsIsRemembered(t *testing.T) {
	for name, transactions := range map[string]bool{"at least once": false, "exactly once": true} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			run := d.run
			if transactions {
				x := &losing{transactor: &transactor{}}
				run = func() *instance {
					return d.startWith(Parts{Store: d.store, Transactions: &Transactions{Sink: x, Marker: x}})
				}
			}
			d.gate.fails = failure.Lossf("compare", "brokers have lost records")
			i := run().streams()
			d.insert(1, 1)
			i.wantEnd(failure.Loss, "^.*brokers have lost records")
			d.gate.fails = nil
			for range 2 {
				run().wantEnd(failure.Loss, "not accepted yet: .*brokers have lost records")
			}
		})
	}
}

// losing is a transactor of brokers with lost records.
type losing struct{ *transactor }

// Transact implements Transactor.
func (x *losing) Transact(ctx context.Context, entries []sink.Entry, mark *kgo.Record) ([]sink.Refusal, error) {
	if len(entries) > 0 {
		return nil, failure.Lossf("compare", "brokers have lost records")
	}
	return x.transactor.Transact(ctx, entries, mark)
}
