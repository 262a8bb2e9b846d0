package stream

import (
	"testing"
	"time"
)

// Retention attaches and detaches partitions, and so do operators and their
// jobs. If the table is published as one, this must not end a session.
func TestPartitionsComeAndGo(t *testing.T) {
	const (
		byRoot    = ` WITH (publish = 'insert', publish_via_partition_root = true)`
		partition = `outbox FOR VALUES IN ('order') PARTITION BY LIST (type)`
	)
	changes := [][]string{
		{`ALTER TABLE outbox DETACH PARTITION rest`, `CREATE TABLE orders PARTITION OF ` + partition, `CREATE TABLE placed PARTITION OF orders FOR VALUES IN ('Placed')`},
		{`ALTER TABLE orders DETACH PARTITION placed CONCURRENTLY`, `DROP TABLE placed`,
			`CREATE UNLOGGED TABLE made (LIKE outbox)`, `ALTER TABLE made SET LOGGED`, `ALTER TABLE orders ATTACH PARTITION made FOR VALUES IN ('Placed')`},
		{`ALTER TABLE outbox DETACH PARTITION orders CONCURRENTLY`, `ALTER TABLE outbox ATTACH PARTITION rest DEFAULT`, `ALTER TABLE made SET UNLOGGED`},
		{`DROP TABLE orders`, `ALTER TABLE rest RENAME TO others`, `CREATE SCHEMA old`, `ALTER TABLE others SET SCHEMA old`},
	}
	t.Parallel()
	for name, members := range map[string]string{"by name": `FOR TABLE outbox`, "all": `FOR ALL TABLES`} {
		for _, when := range []string{"running", "stopped"} {
			t.Run(name+" while "+when, func(t *testing.T) {
				t.Parallel()
				d := sharedDatabase(t)
				d.exec(`DROP TABLE outbox`)
				d.exec(`CREATE TABLE outbox (id text NOT NULL, aggregatetype text, aggregateid text, type text, payload text) PARTITION BY LIST (aggregatetype)`)
				d.exec(`CREATE TABLE rest PARTITION OF outbox DEFAULT`)
				d.exec(`CREATE PUBLICATION cdc_outbox ` + members + byRoot)
				s, g := &fakeStore{}, &gate{topic: &topic{}}
				i := d.start(s, g).streams()
				ids := d.insert(1, 1)
				for _, statements := range changes {
					arrive(t, g.topic, len(ids))
					if when == "stopped" {
						i.stop()
					}
					for _, sql := range statements {
						d.exec(sql)
					}
					ids = append(ids, d.insert(1, 1)...)
					if when == "stopped" {
						i = d.start(s, g).streams()
					}
					i.looks()
					i.looks() // the first may have been under way
				}
				arrive(t, g.topic, len(ids))
				if i.metrics.reconnected() > 0 {
					t.Error("a session ended over it")
				}
				i.stop()
				wantOnce(t, g.topic, ids)
			})
		}
	}
}

// looks returns once slot and tables were looked at again.
func (i *instance) looks() {
	i.t.Helper()
	last := func() time.Time {
		i.health.mu.Lock()
		defer i.health.mu.Unlock()
		return i.health.looked
	}
	before := last()
	eventually(i.t, "a look at the tables", func() bool { return last().After(before) })
}

// What is in the table arrives, also what was written while the table had
// another name, and nobody looked.
func TestRenamedForAWhile(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string][2]string{
		"table":  {`ALTER TABLE outbox RENAME TO rows; CREATE VIEW outbox AS SELECT * FROM rows`, `DROP VIEW outbox; ALTER TABLE rows RENAME TO outbox`},
		"schema": {`ALTER SCHEMA public RENAME TO app; SET search_path = app`, `ALTER SCHEMA app RENAME TO public; RESET search_path`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := sharedDatabase(t)
			s, g := &fakeStore{}, &gate{topic: &topic{}}
			i := d.start(s, g).streams()
			ids := d.insert(1, 1)
			arrive(t, g.topic, 1)
			i.stop()
			d.exec(sql[0])
			ids = append(ids, d.insert(3, 1)...)
			d.exec(sql[1])
			ids = append(ids, d.insert(1, 1)...)
			i = d.start(s, g).streams()
			ids = append(ids, d.insert(1, 1)...)
			arrive(t, g.topic, len(ids))
			i.stop()
			wantOnce(t, g.topic, ids)
		})
	}
}
