package stream

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const (
	forOutbox = `CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'insert')`
	inSchema  = `CREATE PUBLICATION cdc_outbox FOR TABLES IN SCHEMA public WITH (publish = 'insert')`
	rename    = `ALTER TABLE outbox RENAME TO "Events"`
	move      = `CREATE SCHEMA app; ALTER TABLE outbox SET SCHEMA app`
)

// reads has the next instances read the tables.
func (d *database) reads(names ...string) {
	d.t.Helper()
	d.opts.Tables = nil
	for _, name := range names {
		d.opts.Tables = append(d.opts.Tables, must.Get(pg.ParseTable(name))(d.t))
	}
}

// insertInto commits n events in a table, each in a transaction.
func (d *database) insertInto(table string, n int) {
	d.t.Helper()
	for range n {
		d.next++
		d.exec(fmt.Sprintf("INSERT INTO %s VALUES ('%d', 'order', 'o', 'Placed', '{}')", table, d.next))
		d.ids = append(d.ids, strconv.Itoa(d.next))
	}
}

// Failure mode 106. The outbox gets another name or schema, and source.tables follows: no
// event is lost, and none comes again, after any earlier events, also in the replay after
// a crash.
func TestE2EPlannedRename(t *testing.T) {
	for name, c := range map[string]struct{ publication, sql, now string }{
		"renamed, of a table":          {forOutbox, rename, `public."Events"`},
		"renamed, of all tables":       {forAllTables, rename, `public."Events"`},
		"renamed, of a schema":         {inSchema, rename, `public."Events"`},
		"another schema, of a table":   {forOutbox, move, `app.outbox`},
		"another schema, of all":       {forAllTables, move, `app.outbox`},
		"and a new one takes the name": {forOutbox, rename + `; ` + outboxTable, `public."Events"`},
		"with messages beside it":      {forOutbox, rename, `public."Events"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, pgtest.Own())
			d := newDatabase(t, server.NewDatabase(t))
			if c.publication == inSchema {
				d.needs(t, 15)
			}
			d.opts.Messages = name == "with messages beside it"
			d.exec(c.publication)
			i := d.run().streams()
			d.publish(2, 1)
			d.exec("CHECKPOINT")
			d.publish(2, 1)
			i.stop()
			d.insertInto("outbox", 2)
			d.exec(c.sql)
			d.insertInto(c.now, 2)
			server.Restart(t, pgtest.Immediate)
			d.connect()
			d.reads(c.now)
			i = d.run().streams()
			d.arrive()
			d.insertInto(c.now, 2)
			d.arrive()
			i.stop()
			server.Restart(t, pgtest.Immediate) // the slot is set back: all comes again
			d.connect()
			i = d.run().streams()
			d.insertInto(c.now, 1)
			d.arrive()
			d.finish(i)
		})
	}
}

// Failure mode 106. A rename under a running connector with the old name in its
// configuration: the error has the name to set, and nothing is lost.
func TestARenameIsNamed(t *testing.T) {
	for name, c := range map[string]struct{ sql, now string }{
		"renamed":        {rename, `public."Events"`},
		"another schema": {move, `app.outbox`},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			i := d.run().streams()
			d.publish(2, 1)
			d.exec(c.sql)
			d.insertInto(c.now, 2)
			i.wantEnd(failure.Config, `table public.outbox is called `+c.now+` now`)
			d.run().wantEnd(failure.Config, `is called`)
			d.insertInto(c.now, 1)
			d.reads(c.now)
			i = d.run().streams()
			d.arrive()
			d.finish(i)
		})
	}
}

// A table with the outbox's name is not in the publication: the message has the present
// name of the table read before.
func TestATableThatTookTheNameIsTold(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	d.publish(2, 1)
	i.stop()
	d.exec(`CREATE TABLE staged (LIKE outbox INCLUDING ALL)`)
	d.exec(`ALTER TABLE outbox RENAME TO former`)
	d.exec(`ALTER TABLE staged RENAME TO outbox`)
	d.run().wantEnd(failure.Loss, `public.outbox is not in publication .*; public.outbox is another table than the one that was read, which is called public.former now; events committed`)
	d.exec(`DROP TABLE former`)
	d.run().wantEnd(failure.Loss, `public.outbox is another table than the one that was read, which was dropped`)
}

// Failure mode 107. A further table in source.tables: the events come from then on.
func TestATableIsAddedToTheConfiguration(t *testing.T) {
	const second = `CREATE TABLE second (LIKE outbox INCLUDING ALL)`
	for name, c := range map[string]struct{ publication, add string }{
		"by name": {forOutbox, `ALTER PUBLICATION cdc_outbox ADD TABLE second`},
		"of all":  {forAllTables, `SELECT 1`},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.exec(c.publication)
			d.exec(second)
			i := d.run().streams()
			d.publish(2, 1)
			i.stop()
			d.reads("outbox", "second")
			if c.publication == forOutbox {
				d.run().wantEnd(failure.Config, `table public.second is not in publication`)
			}
			d.exec(c.add)
			d.insertInto("outbox", 1)
			d.insertInto("second", 2)
			i = d.run().streams()
			d.arrive()
			d.insertInto("second", 1)
			d.insertInto("outbox", 1)
			d.arrive()
			d.finish(i)
			d.run().streams().stop()
			d.wantOnce()
		})
	}
}

// Failure mode 107. A change of source.tables loses events, or does not.
func TestAChangeOfTheTablesThatIsAMistake(t *testing.T) {
	for name, c := range map[string]struct {
		sql   string
		now   string
		class failure.Class
		text  string
	}{
		"a name that there is not":     {`SELECT 1`, "outbx", failure.Config, `table public.outbx does not exist`},
		"another table in its place":   {`CREATE TABLE second (LIKE outbox); ALTER PUBLICATION cdc_outbox ADD TABLE second`, "second", failure.Loss, `does not name public.outbox any more`},
		"a table dropped":              {`DROP TABLE outbox`, "outbox", failure.Loss, `table public.outbox does not exist`},
		"a table made anew":            {`DROP TABLE outbox; ` + outboxTable + `; ALTER PUBLICATION cdc_outbox ADD TABLE outbox`, "outbox", failure.Loss, `taken out of it and added again`},
		"renamed, and out of it since": {`ALTER PUBLICATION cdc_outbox SET TABLE other; ` + rename, `"Events"`, failure.Loss, `is not in publication`},
		"renamed, out of it and back":  {`ALTER PUBLICATION cdc_outbox SET TABLE other; ` + rename + `; ALTER PUBLICATION cdc_outbox ADD TABLE "Events"`, `"Events"`, failure.Loss, `taken out of it and added again`},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.exec(`CREATE TABLE other (); ` + forOutbox)
			i := d.run().streams()
			d.publish(2, 1)
			i.stop()
			d.exec(c.sql)
			d.reads(c.now)
			d.run().wantEnd(c.class, c.text)
		})
	}
}
