package stream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Slot or publication is changed, under a stopped or a running connector, so that events
// are left out. Each case ends with class Loss, and nothing lost is created again.
func TestLosses(t *testing.T) {
	const (
		stopped = 1 << iota
		running
	)
	for name, c := range map[string]struct {
		when int
		sql  []string // %[1]s is the slot
		text string
	}{
		"48 unlogged, all tables": {stopped | running, []string{`ALTER TABLE outbox SET UNLOGGED`}, `outbox cannot be published`},
		"48 view, all tables": {stopped | running, []string{`ALTER TABLE outbox RENAME TO rows`, `CREATE VIEW outbox AS SELECT * FROM rows`},
			`outbox cannot be published`},
		"48 renamed partition, all tables":        {stopped | running, []string{makeRoot, attachOutbox}, `under the name of public.events`},
		"48 child, all tables":                    {stopped | running, []string{`CREATE TABLE child () INHERITS (outbox)`}, `child inherits from table public.outbox`},
		"11 publication dropped, beside messages": {running, []string{`DROP PUBLICATION cdc_outbox`}, "publication"},
		"12 table taken out and put back, beside messages": {running, []string{`CREATE TABLE other ()`, `ALTER PUBLICATION cdc_outbox SET TABLE other`,
			`ALTER PUBLICATION cdc_outbox SET TABLE outbox`}, "publication"},
		"5 slot dropped": {stopped, []string{
			`SELECT pg_drop_replication_slot('%[1]s')`}, `slot .* is gone, .* between .* and`},
		"5 slot dropped by Patroni": {stopped, []string{
			`SET application_name = 'Patroni restapi'`, `SELECT pg_drop_replication_slot('%[1]s')`}, `slot .* is gone, .* Patroni manages this cluster`},
		"6 slot dropped and recreated": {stopped, []string{
			`SELECT pg_drop_replication_slot('%[1]s')`, `INSERT INTO outbox VALUES ('lost', 'order', 'o', 'Placed', '{}')`,
			`SELECT pg_create_logical_replication_slot('%[1]s', 'pgoutput')`}, `advanced or recreated .* between .* and`},
		"10 slot advanced": {stopped, []string{
			`INSERT INTO outbox VALUES ('lost', 'order', 'o', 'Placed', '{}')`,
			`SELECT pg_replication_slot_advance('%[1]s', pg_current_wal_lsn())`}, `advanced or recreated .* between .* and`},
		"11 publication dropped": {stopped | running, []string{
			`DROP PUBLICATION cdc_outbox`, `INSERT INTO outbox VALUES ('lost', 'order', 'o', 'Placed', '{}')`},
			`publication "?cdc_outbox"?(: The publication)? does not exist`},
		"11 publication recreated": {stopped | running, []string{
			`DROP PUBLICATION cdc_outbox`, `CREATE PUBLICATION cdc_outbox FOR TABLE outbox`}, `publication was recreated`},
		"12 table taken out": {running, []string{
			`CREATE TABLE other ()`, `ALTER PUBLICATION cdc_outbox SET TABLE other`}, `outbox is not in publication`},
		"12 table taken out and put back": {stopped | running, []string{
			`CREATE TABLE other ()`, `ALTER PUBLICATION cdc_outbox SET TABLE other`,
			`INSERT INTO outbox VALUES ('lost', 'order', 'o', 'Placed', '{}')`,
			`ALTER PUBLICATION cdc_outbox SET TABLE outbox`}, `taken out of it and added again, since`},
		"13 row filter": {running, []string{
			`ALTER PUBLICATION cdc_outbox SET TABLE outbox WHERE (id > '5')`}, `row filter`},
		"13 column list": {stopped | running, []string{
			`ALTER PUBLICATION cdc_outbox SET TABLE outbox (id)`}, `leaves out columns`},
	} {
		for when, how := range map[int]string{stopped: "while stopped", running: "while running"} {
			if c.when&when == 0 {
				continue
			}
			t.Run(name+" "+how, func(t *testing.T) {
				d := outbox(t)
				if strings.HasPrefix(name, "13 ") {
					d.needs(t, 15) // row filters and column lists
				}
				if strings.HasSuffix(name, "all tables") {
					d.exec(forAllTables)
				}
				d.opts.Messages = strings.HasSuffix(name, "beside messages")
				i := d.run().streams()
				d.publish(2, 1)
				if when == stopped {
					i.stop()
					eventually(t, "the slot to be free", func() bool { return d.walsender() == 0 })
				}
				for _, sql := range c.sql {
					d.exec(fmt.Sprintf(sql+"/* %[1]s */", d.opts.Slot))
				}
				if when == stopped {
					i = d.run()
				}
				i.wantEnd(failure.Loss, c.text)
				d.run().wantEnd(failure.Loss, ".") // and still, for the next instance
				d.wantOnce()
			})
		}
	}
}

// needs skips a test under earlier versions of PostgreSQL.
func (d *database) needs(t *testing.T, major int) {
	t.Helper()
	if d.text(fmt.Sprintf("SELECT (current_setting('server_version_num')::int >= %d)::text", major*10000)) != "true" {
		t.Skipf("what is tested came with PostgreSQL %d", major)
	}
}

func (d *database) wantNoSlot() {
	d.t.Helper()
	if n := d.text("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = '" + d.opts.Slot + "'"); n != "0" {
		d.t.Error("a slot was made")
	}
}

// Failure mode 5, without a checkpoint: the process itself knows its reading.
func TestSlotDroppedUnderAProcessWithoutCheckpoints(t *testing.T) {
	d := outbox(t)
	i := d.start(&fakeStore{forget: true}, d.gate).streams()
	d.publish(1, 1)
	eventually(t, "the drop of the slot", func() bool {
		d.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", d.walsender()))
		_, err := d.conn.Exec(t.Context(), "SELECT pg_drop_replication_slot($1)", d.opts.Slot)
		return err == nil
	})
	i.wantEnd(failure.Loss, `is gone`)
	d.wantNoSlot()
}

// Failure mode 7.
func TestE2ESlotThatLostItsLog(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Setting("max_slot_wal_keep_size", "1MB"), pgtest.Setting("min_wal_size", "32MB"),
		pgtest.Setting("max_wal_size", "32MB"))
	d := newDatabase(t, server.NewDatabase(t))
	i := d.run().streams()
	d.publish(1, 1)
	i.stop()
	d.exec("CREATE TABLE busy (v text)")
	eventually(t, "the slot to be lost", func() bool {
		d.exec("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 10000)")
		d.exec("SELECT pg_switch_wal()")
		d.exec("CHECKPOINT")
		return d.text("SELECT wal_status FROM pg_replication_slots WHERE slot_name = '"+d.opts.Slot+"'") == "lost"
	})
	d.run().wantEnd(failure.Loss, `slot .* is lost .* between .* and`)
}

// Failure mode 43.
func TestOtherCluster(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	d.publish(1, 1)
	i.stop()
	name := d.text("SELECT current_database()")
	other := pgtest.Start(t, pgtest.Own())
	other.Exec(t, "CREATE DATABASE "+name)
	d.opts.URL = other.URL(name)
	pgtest.Exec(t, other.URL(name), outboxTable)
	d.run().wantEnd(failure.Loss, `wrong database cluster`)
}

const forAllTables = `CREATE PUBLICATION cdc_outbox FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`

// Failure modes 13 and 48: reasons to leave rows out are found before a slot is made and
// holds back the server's log. (The tables refused by catalog.CheckPublication are for
// its own tests.)
func TestFoundBeforeTheSlotIsMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  []string
		text string
	}{
		"no table":        {[]string{`DROP TABLE outbox`}, `table public.outbox does not exist`},
		"no column":       {[]string{`ALTER TABLE outbox DROP COLUMN payload`}, `no column "payload"`},
		"row filter":      {[]string{`CREATE PUBLICATION cdc_outbox FOR TABLE outbox WHERE (id > '5')`}, `row filter`},
		"without inserts": {[]string{`CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'update')`}, `does not publish inserts`},
		"other table":     {[]string{`CREATE TABLE other ()`, `CREATE PUBLICATION cdc_outbox FOR TABLE other`}, `is not in publication`},
		"column list":     {[]string{`CREATE PUBLICATION cdc_outbox FOR TABLE outbox (id, aggregateid)`}, `leaves out columns .* aggregatetype, payload`},

		"column list without the type":    {[]string{`CREATE PUBLICATION cdc_outbox FOR TABLE outbox (id, aggregatetype, aggregateid, payload)`}, `event.type: column "type" of table public.outbox is not in the stream: publication "cdc_outbox" leaves it out`},
		"column list without the headers": {[]string{`ALTER TABLE outbox ADD COLUMN headers jsonb`, `CREATE PUBLICATION cdc_outbox FOR TABLE outbox (id, aggregatetype, aggregateid, type, payload)`}, `event.headers: column "headers" of table public.outbox is not in the stream`},
		"generated type":                  {[]string{`ALTER TABLE outbox DROP COLUMN type, ADD COLUMN type text GENERATED ALWAYS AS (lower(aggregatetype)) STORED`}, `event.type: column "type" of table public.outbox is not in the stream: it is a generated column`},
		"generated key":                   {[]string{`ALTER TABLE outbox DROP COLUMN aggregateid, ADD COLUMN aggregateid text GENERATED ALWAYS AS (lower(aggregatetype)) STORED`}, `event.key: column "aggregateid" of table public.outbox is not in the stream: it is a generated column`},

		"unlogged":                        {[]string{`ALTER TABLE outbox SET UNLOGGED`, forAllTables}, `outbox cannot be published`},
		"view":                            {[]string{`ALTER TABLE outbox RENAME TO rows`, `CREATE VIEW outbox AS SELECT * FROM rows`, forAllTables}, `outbox cannot be published`},
		"renamed partition":               {[]string{makeRoot, attachOutbox, forAllTables}, `under the name of public.events`},
		"child":                           {[]string{`CREATE TABLE child () INHERITS (outbox)`}, `child inherits from table public.outbox`},
		"unlogged, without a publication": {[]string{`ALTER TABLE outbox SET UNLOGGED`}, `outbox cannot be published`},
		"unlogged partition, without a publication": {[]string{`ALTER TABLE outbox RENAME TO part`,
			`CREATE TABLE outbox (LIKE part) PARTITION BY LIST (id)`, `ALTER TABLE part SET UNLOGGED`,
			`ALTER TABLE outbox ATTACH PARTITION part DEFAULT`}, `partition public.part of table public.outbox`},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			if name == "row filter" || strings.HasPrefix(name, "column list") {
				d.needs(t, 15) // row filters and column lists
			}
			for _, sql := range c.sql {
				d.exec(sql)
			}
			d.run().wantEnd(failure.Config, c.text)
			d.wantNoSlot()
		})
	}
}

const (
	makeRoot     = `CREATE TABLE events (LIKE outbox) PARTITION BY LIST (id)`
	attachOutbox = `ALTER TABLE events ATTACH PARTITION outbox DEFAULT`
)

// A table may be a member of the publication by its name and by its schema. As long as
// either lasts nothing is left out.
func TestMembershipThatLasts(t *testing.T) {
	const (
		addSchema  = `ALTER PUBLICATION cdc_outbox ADD TABLES IN SCHEMA public`
		dropSchema = `ALTER PUBLICATION cdc_outbox DROP TABLES IN SCHEMA public`
		addTable   = `ALTER PUBLICATION cdc_outbox ADD TABLE outbox`
		dropTable  = `ALTER PUBLICATION cdc_outbox DROP TABLE outbox`
	)
	t.Parallel()
	start := func(t *testing.T) (*database, *instance) {
		d := outbox(t)
		d.needs(t, 15) // row filters and column lists
		return d, d.run().streams()
	}

	t.Run("while running", func(t *testing.T) {
		d, i := start(t)
		d.insert(1, 1)
		for range 2 {
			for _, change := range []struct {
				sql     string
				members int
			}{{addSchema, 2}, {dropTable, 1}, {addTable, 2}, {dropSchema, 1}} {
				d.exec(change.sql)
				d.insert(1, 1)
				eventually(t, "the memberships in the checkpoint", func() bool {
					return strings.Count(d.store.stored().Publication, "|") == change.members-1
				})
			}
		}
		d.arrive()
		if i.metrics.reconnected() > 0 {
			t.Error("a session ended over it")
		}
		d.finish(i)
	})
	t.Run("while stopped", func(t *testing.T) {
		d, i := start(t)
		for _, change := range []string{addSchema, dropTable, addTable, dropSchema} {
			d.publish(1, 1)
			i.stop()
			d.exec(change)
			d.insert(1, 1)
			i = d.run().streams()
		}
		d.arrive()
		d.finish(i)
	})
	// Without a look between, the order of both changes is not known.
	t.Run("one for the other while stopped", func(t *testing.T) {
		d, i := start(t)
		i.stop()
		d.exec(addSchema)
		d.exec(dropTable)
		d.run().wantEnd(failure.Loss, `taken out of it and added again`)
	})
}

// A mistaken name in the configuration is an error of the configuration. No event is lost.
func TestAMistakenNameIsNoLoss(t *testing.T) {
	for name, c := range map[string]struct {
		mistake func(*Options)
		remedy  string
	}{
		"table":       {func(o *Options) { o.Tables = []pg.Table{{Schema: "public", Name: "outbx"}} }, "did you mean public.outbox?"},
		"publication": {func(o *Options) { o.Publication = "orders" }, "did you mean source.publication: cdc_outbox?"},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			i := d.run().streams()
			d.publish(2, 1)
			i.stop()
			right := d.opts
			c.mistake(&d.opts)
			i = d.run()
			if err := i.wait(); failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), c.remedy) {
				t.Errorf("%v of class %d, remedy %q", err, failure.ClassOf(err), failure.RemedyOf(err))
			}
			d.opts = right
			d.run().streams().stop()
		})
	}
}
