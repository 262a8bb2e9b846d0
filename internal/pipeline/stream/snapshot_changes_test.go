package stream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// onePart and parts are tables without a growing key, read as their rows lie. numbered is
// read in the order of its key.
const (
	numbered = `CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), n bigserial PRIMARY KEY, ` + outboxColumns + `)`
	onePart  = `CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, ` + outboxColumns + `)`
	parts    = `CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), shard int DEFAULT 1, ` + outboxColumns + `, PRIMARY KEY (shard, id)) PARTITION BY LIST (shard);
		CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE p2 PARTITION OF outbox FOR VALUES IN (2);
		CREATE TABLE p3 (LIKE outbox INCLUDING ALL); INSERT INTO p3 (shard, aggregatetype, aggregateid, type, payload) SELECT 3, 'order', 'o', 'Placed', 'old' FROM generate_series(1, 9)`
	lastPlace = `ctid = (SELECT max(ctid) FROM outbox)`
)

// Failure mode 200. A table changes while its snapshot is interrupted. All rows that are
// there are published; with exactly-once delivery none twice, or the run refuses to go on.
func TestSnapshotOfAChangedTable(t *testing.T) {
	for name, c := range map[string]struct {
		table, change string
		same          bool // no row of the snapshot is touched: the snapshot goes on
	}{
		"nothing":                     {onePart, `SELECT`, true},
		"rows come":                   {onePart, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) SELECT 'order', 'o', 'Placed', 'later' FROM generate_series(1, 5)`, true},
		"vacuumed":                    {onePart, `VACUUM (FREEZE) outbox`, true},
		"an update undone":            {onePart, `BEGIN; UPDATE outbox SET payload = 'z'; ROLLBACK`, true},
		"a row updated":               {onePart, `UPDATE outbox SET payload = 'z' WHERE ` + lastPlace, false},
		"a row deleted":               {onePart, `DELETE FROM outbox WHERE ` + lastPlace, false},
		"rows moved":                  {onePart, `VACUUM FULL outbox`, false},
		"published rows moved":        {onePart, `DELETE FROM outbox WHERE ctid = (SELECT min(ctid) FROM outbox); VACUUM FULL outbox`, false},
		"clustered":                   {onePart, `CLUSTER outbox USING outbox_pkey`, false},
		"truncated":                   {onePart, `TRUNCATE outbox`, false},
		"rewritten":                   {onePart, `ALTER TABLE outbox ALTER payload TYPE varchar(3000)` + `, ADD n int DEFAULT random() * 9`, false},
		"a key moved":                 {numbered, `VACUUM FULL outbox`, true},
		"a key renamed":               {numbered, `ALTER TABLE outbox RENAME n TO number`, true},
		"a key's name taken":          {numbered, `ALTER TABLE outbox RENAME n TO number; ALTER TABLE outbox ADD n bigint`, true},
		"a key of another type":       {numbered, `ALTER TABLE outbox ALTER n DROP DEFAULT; ALTER TABLE outbox ALTER n TYPE uuid USING lpad(n::text, 32, '0')::uuid`, false},
		"a key dropped":               {numbered, `ALTER TABLE outbox DROP n`, false},
		"a partition came":            {parts, `CREATE TABLE p4 PARTITION OF outbox FOR VALUES IN (4)`, true},
		"a partition with rows came":  {parts, `ALTER TABLE outbox ATTACH PARTITION p3 FOR VALUES IN (3)`, true},
		"rows went, old ones came":    {parts, `DELETE FROM p2 WHERE ctid IN (SELECT ctid FROM p2 LIMIT 9); ALTER TABLE outbox ATTACH PARTITION p3 FOR VALUES IN (3)`, false},
		"a partition went":            {parts, `ALTER TABLE outbox DETACH PARTITION p2`, false},
		"a partition behind moved":    {parts, `VACUUM FULL p2`, true},
		"a partition behind vanished": {parts, `TRUNCATE p2`, false},
	} {
		for _, once := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, exactly once %t", name, once), func(t *testing.T) {
				w := interruptedSnapshot(t, c.table, once)
				for _, sql := range strings.Split(c.change, "; ") {
					w.d.exec(sql)
				}
				w.goesOn(c.same)
			})
		}
	}
}

// A session tells of an update up to ten seconds later, a procedure with COMMITs at its
// end. The row must not be lost meanwhile.
func TestSnapshotKnowsUpdatesNotCountedYet(t *testing.T) {
	for name, procedure := range map[string]bool{"an idle session": false, "a procedure": true} {
		t.Run(name, func(t *testing.T) {
			w := interruptedSnapshot(t, onePart+`; CREATE PROCEDURE updates() LANGUAGE plpgsql AS 'BEGIN UPDATE outbox SET payload = ''z'' WHERE `+lastPlace+`; COMMIT; PERFORM pg_sleep(60); END'`, false)
			session := must.Get(pgx.Connect(t.Context(), w.d.url))(t)
			ctx, cancel := context.WithCancel(t.Context())
			var call sync.WaitGroup
			defer func() {
				cancel()
				call.Wait()
				_ = session.Close(context.WithoutCancel(ctx))
			}()
			if procedure {
				call.Go(func() { _, _ = session.Exec(ctx, `CALL updates()`) })
				eventually(t, "the update", func() bool { return w.d.text(`SELECT count(*)::text FROM outbox WHERE payload = 'z'`) == "1" })
			} else {
				must.Get(session.Exec(t.Context(), `UPDATE outbox SET payload = 'z' WHERE `+lastPlace))(t)
			}
			w.goesOn(false)
		})
	}
}

// interruptedSnapshot is a snapshot of 400 rows or more, interrupted behind the first 50.
func interruptedSnapshot(t *testing.T, table string, once bool) *writers {
	t.Helper()
	d := outbox(t)
	d.exec("DROP TABLE outbox")
	for _, sql := range strings.Split(table, ";\n") {
		d.exec(sql)
	}
	d.opts.Snapshot, d.opts.DrainTimeout, d.opts.MaxBufferedBytes = true, time.Millisecond, 12_000
	d.opts.Boundaries.Keep = once // the rows are no transaction of the database
	w := &writers{d: d, transacts: once, any: true}
	d.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) SELECT 'order', 'o', 'Placed', repeat('y', 30) FROM generate_series(1, 400)`)
	if strings.Contains(table, "PARTITION BY") {
		d.exec(`INSERT INTO outbox (shard, aggregatetype, aggregateid, type, payload) SELECT 2, 'order', 'o', 'Placed', repeat('y', 30) FROM generate_series(1, 100)`)
	}
	w.interrupted(50, false)
	if !d.store.stored().Snapshot {
		t.Fatal("the snapshot was not interrupted")
	}
	return w
}

// goesOn runs the rest of the snapshot. same: without any row twice.
func (w *writers) goesOn(same bool) {
	d, t := w.d, w.d.t
	t.Helper()
	i, _ := w.instance(&limited{topic: d.topic, left: 1 << 30})
	eventually(t, "the end of the snapshot", func() bool { return !d.store.stored().Snapshot || i.ended() })
	w.again(w.transacts || same)
	if w.transacts && !same {
		i.wantEnd(failure.Config, "rows of public.outbox in the slot's snapshot")
		return
	}
	if i.ended() {
		t.Fatalf("Run = %v", i.err)
	}
	rows := must.Get(d.conn.Query(t.Context(), `SELECT id::text FROM outbox WHERE payload <> 'old'`))(t)
	w.written = must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	w.judge(i, w.transacts || same)
	i.stop()
}
