package stream

import (
	"testing"
	"time"
)

// Retention attaches and detaches partitions, and so do operators and their
// jobs: nothing of a table that is published as one ends a session over it.
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
				d := outbox(t)
				d.exec(`DROP TABLE outbox`)
				d.exec(`CREATE TABLE outbox (id text NOT NULL, aggregatetype text, aggregateid text, type text, payload text) PARTITION BY LIST (aggregatetype)`)
				d.exec(`CREATE TABLE rest PARTITION OF outbox DEFAULT`)
				d.exec(`CREATE PUBLICATION cdc_outbox ` + members + byRoot)
				i := d.run().streams()
				d.insert(1, 1)
				for _, statements := range changes {
					d.arrive()
					if when == "stopped" {
						i.stop()
					}
					for _, sql := range statements {
						d.exec(sql)
					}
					d.insert(1, 1)
					if when == "stopped" {
						i = d.run().streams()
					}
					i.looks()
					i.looks() // the first may have been under way
				}
				d.arrive()
				if i.metrics.reconnected() > 0 {
					t.Error("a session ended over it")
				}
				d.finish(i)
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
			d := outbox(t)
			i := d.run().streams()
			d.publish(1, 1)
			i.stop()
			d.exec(sql[0])
			d.insert(3, 1)
			d.exec(sql[1])
			d.insert(1, 1)
			i = d.run().streams()
			d.publish(1, 1)
			d.finish(i)
		})
	}
}
