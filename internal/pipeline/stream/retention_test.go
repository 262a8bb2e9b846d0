package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Retention runs at full speed beside a sink without acknowledgements, then with all:
// every deleted row has arrived.
func TestRetentionTakesOnlyWhatIsDelivered(t *testing.T) {
	d := retained(t)
	i := d.run().streams()
	defer d.watch(d.gate)()

	d.publish(20, 7)
	eventually(t, "the delivered rows to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })

	d.gate.hold()
	d.insert(20, 7)
	i.inFlight(20)
	passes := i.metrics.passCount()
	eventually(t, "more passes", func() bool { return i.metrics.passCount() > passes+5 })
	if got := d.text("SELECT count(*)::text FROM outbox"); got != "20" {
		t.Errorf("%s rows are left while none of 20 is delivered", got)
	}
	d.gate.open()
	d.arrive()
	eventually(t, "the rest to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })
	eventually(t, "the status to say so", func() bool {
		return i.status().Retention["public.outbox"].DeletedRows == int64(len(d.ids))
	})
	d.finish(i)
}

// The confirmed position passes a row kept out of the stream by a changed publication. The
// row must still be there when the operator is told.
func TestRetentionLeavesWhatThePublicationLeftOut(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]string{
		"made unlogged":       {`ALTER TABLE outbox SET UNLOGGED`, leftOut},
		"a view in its place": {`ALTER TABLE outbox RENAME TO hidden`, `CREATE VIEW outbox AS SELECT * FROM hidden`, leftOut},
		"made a partition": {`CREATE TABLE events (LIKE outbox) PARTITION BY LIST (id)`, `ALTER TABLE events ATTACH PARTITION outbox DEFAULT`,
			leftOut},
		"table out and in again": {`ALTER PUBLICATION cdc_outbox DROP TABLE outbox`, leftOut, `ALTER PUBLICATION cdc_outbox ADD TABLE outbox`},
		"another table of its name": {`ALTER TABLE outbox RENAME TO outbox_old`,
			`CREATE TABLE outbox (LIKE outbox_old INCLUDING ALL)`, leftOut},
	} {
		t.Run(name, func(t *testing.T) {
			d := retained(t)
			if strings.Contains(name, "a view") || strings.HasPrefix(name, "made") { // else the table is a member
				d.exec(forAllTables)
			}
			i := d.run().streams()
			d.publish(3, 1)
			eventually(t, "the delivered rows to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })
			for _, sql := range change {
				d.exec(sql)
			}
			d.pastNow(i)
			i.wantEnd(failure.Loss, "")
			if got := d.text("SELECT count(*)::text FROM outbox"); got != "1" {
				t.Error("the row that was not published went")
			}
		})
	}
}

// Rows under their partition's name are not published. They must still be there when the
// operator is told.
func TestRetentionLeavesWhatCameUnderThePartitionsName(t *testing.T) {
	d := outbox(t)
	d.exec(`ALTER TABLE outbox RENAME TO plain`)
	d.exec(`CREATE TABLE outbox (LIKE plain, created_at timestamptz DEFAULT now()) PARTITION BY RANGE (created_at)`)
	d.exec(`CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT`)
	d.limits.monitor = usual.monitor // later than the row left out is confirmed
	d.opts.Retention.After = time.Millisecond
	d.opts.Retention.Interval = time.Millisecond
	i := d.run().streams()
	d.publish(3, 1)
	eventually(t, "the delivered rows to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })
	d.exec(`ALTER PUBLICATION cdc_outbox SET (publish_via_partition_root = false)`)
	d.exec(leftOut)
	d.pastNow(i)
	i.wantEnd(failure.Loss, "under the partitions' names")
	if got := d.text("SELECT count(*)::text FROM outbox"); got != "1" {
		t.Error("the row that was not published went")
	}
}

// pastNow writes to the log until the confirmed position has passed the present end, or
// the instance has ended.
func (d *database) pastNow(i *instance) {
	d.t.Helper()
	end := d.lsn("SELECT pg_current_wal_lsn()::text")
	eventually(d.t, "the confirmed position to go on", func() bool {
		d.exec(`SELECT pg_logical_emit_message(false, 'filler', repeat('x', 400000))`)
		return i.ended() || d.confirmed() >= end
	})
}

const leftOut = `INSERT INTO outbox VALUES ('left out', 'order', 'o-1', 'Placed', '{}')`

// The connections beside the stream lead to the stream's server: positions of another
// mean nothing.
func TestConnectionsBesideTheStream(t *testing.T) {
	d := outbox(t)
	server := must.Get(catalog.ReadServer(t.Context(), d.conn))(t)
	for name, tt := range map[string]struct {
		of   checkpoint.Checkpoint
		want string
	}{
		"same":             {checkpoint.Checkpoint{SystemID: server.SystemID, Timeline: server.Timeline}, ""},
		"another timeline": {checkpoint.Checkpoint{SystemID: server.SystemID, Timeline: server.Timeline + 1}, "on timeline"},
		"another cluster":  {checkpoint.Checkpoint{SystemID: "1", Timeline: server.Timeline}, "system identifier"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &source{opts: d.opts, intake: &intake{}, tables: &outboxTables{}}
			conn, err := s.connectBeside(t.Context(), tt.of)
			catalog.Close(conn)
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || failure.ClassOf(err) != failure.Transient):
				t.Errorf("connected with %v, want a passing error with %q", err, tt.want)
			}
		})
	}
}

// retained is a database with rows deleted as soon as published.
func retained(t *testing.T) *database {
	t.Helper()
	d := sharedDatabase(t)
	d.exec(`ALTER TABLE outbox ADD created_at timestamptz DEFAULT now()`)
	d.limits.monitor = usual.monitor // later than the row left out is confirmed
	d.opts.Retention.After = time.Millisecond
	d.opts.Retention.Interval = time.Millisecond
	return d
}

// Retention attaches and detaches partitions, as do operators and their jobs. A session
// must not end, if the table is published as one.
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
					i.looks() // the first look may have been under way
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

// Everything in the table arrives, also rows written under another name while nobody
// looked.
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
