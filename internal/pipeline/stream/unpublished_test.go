package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

const forAllTables = `CREATE PUBLICATION cdc_outbox FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`

// Failure mode 48: what a catalog.View refuses, run refuses, before it makes a
// slot. (Which tables these are, wal's tests ask the server.)
func TestTableThatNeverReachesTheStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  []string
		text string
	}{
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
			t.Parallel()
			d := sharedDatabase(t)
			for _, sql := range c.sql {
				d.exec(sql)
			}
			d.start(&fakeStore{}, &gate{topic: &topic{}}).wantEnd(failure.Config, c.text)
			if n := d.text("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = '" + d.opts.Slot + "'"); n != "0" {
				t.Error("a slot was made that holds back the server's log")
			}
		})
	}
}

const (
	makeRoot     = `CREATE TABLE events (LIKE outbox) PARTITION BY LIST (id)`
	attachOutbox = `ALTER TABLE events ATTACH PARTITION outbox DEFAULT`
)

// Failure mode 48, of a table that did reach it: what was inserted since may be
// lost to the stream.
func TestTableThatNoLongerReachesTheStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  []string
		text string
	}{
		"unlogged":          {[]string{`ALTER TABLE outbox SET UNLOGGED`}, `outbox cannot be published`},
		"view":              {[]string{`ALTER TABLE outbox RENAME TO rows`, `CREATE VIEW outbox AS SELECT * FROM rows`}, `outbox cannot be published`},
		"renamed partition": {[]string{makeRoot, attachOutbox}, `under the name of public.events`},
		"child":             {[]string{`CREATE TABLE child () INHERITS (outbox)`}, `child inherits from table public.outbox`},
	} {
		for _, when := range []string{"stopped", "running"} {
			t.Run(name+" while "+when, func(t *testing.T) {
				t.Parallel()
				d := sharedDatabase(t)
				d.exec(forAllTables)
				s, g := &fakeStore{}, &gate{topic: &topic{}}
				i := d.start(s, g).streams()
				ids := d.insert(2, 1)
				arrive(t, g.topic, 2)
				if when == "stopped" {
					i.stop()
				}
				for _, sql := range c.sql {
					d.exec(sql)
				}
				if when == "stopped" {
					i = d.start(s, g)
				}
				i.wantEnd(failure.Loss, c.text)
				d.start(s, g).wantEnd(failure.Loss, c.text) // and still
				wantOnce(t, g.topic, ids)
			})
		}
	}
}
