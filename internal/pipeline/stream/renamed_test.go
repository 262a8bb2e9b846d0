package stream

import (
	"fmt"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// staged fills a table with the rows of the outbox, as a migration does before the new
// table takes the name.
const staged = `CREATE TABLE staged (LIKE outbox INCLUDING ALL); INSERT INTO staged SELECT * FROM outbox`

// swapped gives the filled table the outbox's name.
const swapped = `BEGIN; ALTER TABLE outbox RENAME TO outbox_old; ALTER TABLE staged RENAME TO outbox; COMMIT`

// Failure mode 75. Rows written under another name are no events, although their table is
// the outbox now.
func TestATableThatTakesTheOutboxsName(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"one after the other": false, "in one transaction": true} {
		t.Run(name, func(t *testing.T) {
			swap := []string{staged, swapped}
			if together {
				swap = []string{staged + `; ALTER TABLE outbox RENAME TO outbox_old; ALTER TABLE staged RENAME TO outbox`}
			}
			start := func(t *testing.T) (*database, *instance) {
				d := outbox(t)
				d.exec(forAllTables)
				i := d.run().streams()
				d.publish(3, 1)
				return d, i
			}
			t.Run("while stopped", func(t *testing.T) {
				d, i := start(t)
				i.stop()
				for _, sql := range swap {
					d.exec(sql)
				}
				d.insert(2, 1)
				i = d.run().streams()
				d.arrive()
				d.finish(i)
			})
			t.Run("behind", func(t *testing.T) {
				d, i := start(t)
				d.gate.hold()
				d.insert(1, 1)
				d.gate.waits(t)
				for _, sql := range swap {
					d.exec(sql)
				}
				d.insert(2, 1)
				d.kill()
				d.gate.open()
				d.arrive()
				d.finish(i)
			})
		})
	}
}

// Failure mode 75. A crash sets the slot back, and everything passed over comes again: a
// replay judges as the first pass did.
func TestE2EAReplayJudgesATableThatTookTheNameAsTheFirstPassDid(t *testing.T) {
	for name, restarted := range map[string]bool{"the same process": false, "another process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, pgtest.Own())
			d := newDatabase(t, server.NewDatabase(t))
			d.exec(forAllTables)
			i := d.run().streams()
			d.publish(3, 1)
			d.exec("CHECKPOINT")
			d.exec(staged)
			d.passes("the copies")
			d.exec(swapped)
			d.passes("the rename")
			i = d.crash(server, i, restarted)
			d.publish(2, 1)
			d.finish(i)
		})
	}
}

// Failure mode 75. The outbox's own rows stay events during another name for a moment,
// also in a replay; nothing is lost.
func TestE2EAReplayOfAnOutboxThatWasRenamedForAWhile(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Own())
	d := newDatabase(t, server.NewDatabase(t))
	d.exec(forAllTables)
	i := d.run().streams()
	d.publish(3, 1)
	d.exec("CHECKPOINT")
	d.exec(`BEGIN; ALTER TABLE outbox RENAME TO busy; INSERT INTO busy VALUES ('busy', 'order', 'o', 'Placed', '{}');
		ALTER TABLE busy RENAME TO outbox; COMMIT`)
	d.ids = append(d.ids, "busy")
	d.arrive()
	d.exec(staged + `; ` + `ALTER TABLE outbox RENAME TO outbox_old; ALTER TABLE staged RENAME TO outbox`)
	d.publish(1, 1)
	i = d.crash(server, i, true)
	d.publish(2, 1)
	d.finish(i)
}

// Failure mode 101. The stream keeps no definition of other tables. Up to PostgreSQL 15
// such a table can become the outbox without a word: when its schema takes the name of
// the outbox's.
func TestATableWhoseSchemaTakesTheOutboxsName(t *testing.T) {
	d := outbox(t)
	d.exec(`CREATE SCHEMA app; CREATE SCHEMA next; ALTER TABLE outbox SET SCHEMA app; CREATE TABLE next.outbox (LIKE app.outbox INCLUDING ALL);
		CREATE PUBLICATION cdc_outbox FOR ALL TABLES WITH (publish = 'insert')`)
	d.opts.Tables[0].Schema = "app"
	d.exec(`SET search_path = app`)
	i := d.run().streams()
	d.publish(2, 1)
	d.exec(`INSERT INTO next.outbox VALUES ('other', 'order', 'o', 'Placed', '{}')`)
	d.publish(1, 1)
	before := d.lsn("SELECT pg_current_wal_flush_lsn()")
	eventually(t, "a look behind it", func() bool { return i.looked() > before })
	d.exec(`BEGIN; ALTER SCHEMA app RENAME TO old; ALTER SCHEMA next RENAME TO app; COMMIT`)
	renamed := d.lsn("SELECT pg_current_wal_flush_lsn()")
	eventually(t, "a look at the tables behind it", func() bool { return d.confirmed() >= renamed })
	d.last() // the stream has no event of ours, and the look has found the table
	eventually(t, "the table to be known", func() bool {
		for _, owned := range d.store.stored().Owned {
			if fmt.Sprint(owned.OID) == d.text(`SELECT 'app.outbox'::regclass::oid::text`) {
				return true
			}
		}
		return false
	})
	d.insert(2, 1)
	d.last()
	d.finish(i)
}
