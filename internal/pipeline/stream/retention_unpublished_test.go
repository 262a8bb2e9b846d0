package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// A row that a changed publication keeps out of the stream is passed by the
// confirmed position. It must still be there when the operator is told.
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
			for range 10 { // until the confirmed position has passed the row
				d.exec(`SELECT pg_logical_emit_message(false, 'filler', repeat('x', 400000)), pg_sleep(0.05)`)
			}
			i.wantEnd(failure.Loss, "")
			if got := d.text("SELECT count(*)::text FROM outbox"); got != "1" {
				t.Error("the row that was not published went")
			}
		})
	}
}

// Rows that come under their partition's name are nobody's. They must still be
// there when the operator is told.
func TestRetentionLeavesWhatCameUnderThePartitionsName(t *testing.T) {
	d := outbox(t)
	d.exec(`ALTER TABLE outbox RENAME TO plain`)
	d.exec(`CREATE TABLE outbox (LIKE plain, created_at timestamptz DEFAULT now()) PARTITION BY RANGE (created_at)`)
	d.exec(`CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT`)
	d.opts.Retention.After = time.Millisecond
	d.opts.Retention.Interval = time.Millisecond
	i := d.run().streams()
	d.publish(3, 1)
	eventually(t, "the delivered rows to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })
	d.exec(`ALTER PUBLICATION cdc_outbox SET (publish_via_partition_root = false)`)
	d.exec(leftOut)
	for range 10 { // until the confirmed position has passed the row
		d.exec(`SELECT pg_logical_emit_message(false, 'filler', repeat('x', 400000)), pg_sleep(0.05)`)
	}
	i.wantEnd(failure.Loss, "under the partitions' names")
	if got := d.text("SELECT count(*)::text FROM outbox"); got != "1" {
		t.Error("the row that was not published went")
	}
}

const leftOut = `INSERT INTO outbox VALUES ('left out', 'order', 'o-1', 'Placed', '{}')`

// The connections beside the stream are to the server of the stream: the
// positions of another say nothing.
func TestConnectionsBesideTheStream(t *testing.T) {
	d := outbox(t)
	server, err := catalog.ReadServer(t.Context(), d.conn)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		of   checkpoint.Checkpoint
		want string
	}{
		"same":             {checkpoint.Checkpoint{SystemID: server.SystemID, Timeline: server.Timeline}, ""},
		"another timeline": {checkpoint.Checkpoint{SystemID: server.SystemID, Timeline: server.Timeline + 1}, "on timeline"},
		"another cluster":  {checkpoint.Checkpoint{SystemID: "1", Timeline: server.Timeline}, "system identifier"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &source{opts: d.opts}
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

// retained is a database whose rows go as soon as they are published.
func retained(t *testing.T) *database {
	t.Helper()
	d := sharedDatabase(t)
	d.exec(`ALTER TABLE outbox ADD created_at timestamptz DEFAULT now()`)
	d.opts.Retention.After = time.Millisecond
	d.opts.Retention.Interval = time.Millisecond
	return d
}
