package stream

import (
	"strconv"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Failure mode 128. A second publication beside the first takes its place, as in
// docs/how-to/change-tables.md: no event is lost, and none comes again.
func TestASecondPublicationTakesOver(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"of the table": forOutbox, "of all tables": forAllTables} {
		for second, sql := range map[string]string{
			"by one of the table": `CREATE PUBLICATION second FOR TABLE outbox WITH (publish = 'insert')`,
			"by one of all":       `CREATE PUBLICATION second FOR ALL TABLES WITH (publish = 'insert')`,
		} {
			t.Run(name+" "+second, func(t *testing.T) {
				d := outbox(t)
				d.exec(first)
				i := d.run().streams()
				d.publish(2, 1)
				d.exec(sql)
				made := must.Get(strconv.ParseUint(d.text(`SELECT xmin::text FROM pg_publication WHERE pubname = 'second'`), 10, 64))(t)
				eventually(t, "a checkpoint that knows it", func() bool { return i.horizon() > made }) // other tests' transactions hold it back, too
				i.stop()
				d.insert(2, 1)
				d.exec(`DROP PUBLICATION cdc_outbox`)
				d.insert(1, 1)
				d.opts.Publication = "second"
				i = d.run().streams()
				d.arrive()
				d.publish(1, 1)
				d.kill()
				d.publish(1, 1)
				i.stop()
				i = d.run().streams()
				d.publish(1, 1)
				d.finish(i)
			})
		}
	}
}

// Failure mode 128. A publication made, or given the table, while the connector
// was stopped may have left out events.
func TestASecondPublicationThatCameLater(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, stopped string }{
		"made":              {`SELECT`, `CREATE PUBLICATION second FOR TABLE outbox WITH (publish = 'insert')`},
		"got the table":     {`CREATE PUBLICATION second`, `ALTER PUBLICATION second ADD TABLE outbox`},
		"published inserts": {`CREATE PUBLICATION second FOR TABLE outbox WITH (publish = 'delete')`, `ALTER PUBLICATION second SET (publish = 'insert')`},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.exec(forOutbox + `; ` + c.before)
			i := d.run().streams()
			d.publish(2, 1)
			made := d.lsn("SELECT pg_current_wal_flush_lsn()")
			eventually(t, "a look behind it", func() bool { return i.looked() >= made })
			i.stop()
			d.insert(1, 1)
			d.exec(c.stopped)
			d.opts.Publication = "second"
			d.run().wantEnd(failure.Loss, `publication was recreated`)
		})
	}
}
