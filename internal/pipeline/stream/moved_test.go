package stream

import (
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// Outboxes in partitions, in place of the usual one.
const (
	byFlag = `DROP TABLE outbox; CREATE TABLE outbox (id text, aggregatetype text, aggregateid text, type text, payload text,
		published bool NOT NULL DEFAULT false, PRIMARY KEY (id, published)) PARTITION BY LIST (published);
		CREATE TABLE waiting PARTITION OF outbox FOR VALUES IN (false);
		CREATE TABLE done PARTITION OF outbox FOR VALUES IN (true)`
	byTime = `DROP TABLE outbox; CREATE TABLE outbox (id text, aggregatetype text, aggregateid text, type text, payload text,
		created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
		CREATE TABLE outbox_default PARTITION OF outbox DEFAULT`
	bySubpartition = `DROP TABLE outbox; CREATE TABLE outbox (id text, aggregatetype text, aggregateid text, type text, payload text,
		created_at timestamptz NOT NULL DEFAULT now(), published bool NOT NULL DEFAULT false, PRIMARY KEY (id, created_at, published)) PARTITION BY RANGE (created_at);
		CREATE TABLE outbox_now PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2200-01-01') PARTITION BY LIST (published);
		CREATE TABLE waiting PARTITION OF outbox_now FOR VALUES IN (false);
		CREATE TABLE done PARTITION OF outbox_now DEFAULT`
	wholeRow = byFlag + `; ALTER TABLE waiting REPLICA IDENTITY FULL; ALTER TABLE done REPLICA IDENTITY FULL; ALTER TABLE outbox REPLICA IDENTITY FULL`
	// outOfDefault is the way of pg_partman's partition_data_time.
	outOfDefault = `CREATE TEMP TABLE moving ON COMMIT DROP AS SELECT * FROM outbox;
		DELETE FROM outbox_default;
		CREATE TABLE outbox_now PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2200-01-01');
		INSERT INTO outbox SELECT * FROM moving`
)

// Failure mode 98. A row moving to another partition is deleted and inserted in the log,
// and is no new event.
func TestRowsThatMoveBetweenPartitions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ table, move string }{
		"a flag is set":          {byFlag, `UPDATE outbox SET published = true WHERE id = '2'`},
		"flags are set":          {byFlag, `UPDATE outbox SET published = true`},
		"with the whole row":     {wholeRow, `UPDATE outbox SET published = true`},
		"in a subpartition":      {bySubpartition, `UPDATE outbox SET published = true`},
		"out of the default":     {byTime, outOfDefault},
		"by one statement":       {byFlag, `WITH moved AS (DELETE FROM outbox WHERE NOT published RETURNING id, aggregatetype, aggregateid, type, payload) INSERT INTO outbox SELECT *, true FROM moved`},
		"in a savepoint":         {byFlag, `BEGIN; DELETE FROM waiting WHERE id = '2'; SAVEPOINT s; INSERT INTO outbox VALUES ('2', 'order', 'o-2', 'Placed', '{}', true); RELEASE s; COMMIT`},
		"between tables by name": {byFlag, `WITH moved AS (DELETE FROM waiting RETURNING id, aggregatetype, aggregateid, type, payload) INSERT INTO done SELECT *, true FROM moved`},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.exec(c.table)
			i := d.run().streams()
			d.publish(3, 1)
			d.exec(c.move)
			d.publish(2, 1)
			d.finish(i)
			if !slices.Contains(i.metrics.ignored, "update") {
				t.Errorf("counted %v, and no update", i.metrics.ignored)
			}
		})
	}
}

// Failure mode 98. event.on_update: fatal sees a move.
func TestAMoveToAnotherPartitionIsAnUpdate(t *testing.T) {
	d := outbox(t)
	d.exec(byFlag)
	d.opts.OnUpdate = transform.UpdateFatal
	i := d.run().streams()
	d.publish(3, 1)
	d.exec(`UPDATE outbox SET published = true WHERE id = '2'`)
	i.wantEnd(failure.Config, "move of an outbox row to another partition")
	d.wantOnce()
}

// Failure mode 98. A crash sets the slot back: a move in the first pass is a move in a
// replay, also in another process.
func TestE2EAReplayJudgesAMoveAsTheFirstPassDid(t *testing.T) {
	for name, restarted := range map[string]bool{"the same process": false, "another process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, pgtest.Own())
			d := newDatabase(t, server.NewDatabase(t))
			d.exec(byFlag)
			i := d.run().streams()
			d.publish(3, 1)
			d.exec("CHECKPOINT")
			d.exec(`UPDATE outbox SET published = true`)
			d.publish(1, 1)
			d.exec(`UPDATE outbox SET published = true`)
			d.passes("the moves")
			i = d.crash(server, i, restarted)
			d.publish(2, 1)
			d.finish(i)
		})
	}
}

// insertsOnly publishes no sign of a move.
const insertsOnly = `CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`

// defaultBecomesPartition is the way of docs/how-to/partitions.md: the default partition
// becomes the partition of its rows' times, and no row is written.
const defaultBecomesPartition = `BEGIN;
	ALTER TABLE outbox DETACH PARTITION outbox_default;
	ALTER TABLE outbox_default RENAME TO outbox_now;
	CREATE TABLE outbox_default PARTITION OF outbox DEFAULT;
	ALTER TABLE outbox ATTACH PARTITION outbox_now FOR VALUES FROM ('2020-01-01') TO ('2200-01-01');
	COMMIT`

// Failure mode 99. Rows leave the default partition without being published again
// although nothing in the stream would tell, also while the connector is behind,
// and none is lost.
func TestRowsLeaveTheDefaultPartitionWithoutAWrite(t *testing.T) {
	t.Parallel()
	for _, publication := range []string{insertsOnly, forAllTables} {
		t.Run("while it reads", func(t *testing.T) {
			d := outbox(t)
			d.exec(byTime)
			d.exec(publication)
			i := d.run().streams()
			d.publish(3, 1)
			d.exec(defaultBecomesPartition)
			d.publish(2, 1)
			d.finish(i)
			if got := d.text(`SELECT count(*)::text FROM outbox_now`); got != "5" {
				t.Errorf("%s rows in the partition, want 5", got)
			}
		})
		t.Run("behind", func(t *testing.T) {
			d := outbox(t)
			d.exec(byTime)
			d.exec(publication)
			i := d.run().streams()
			d.gate.hold()
			d.insert(2, 1)
			d.gate.waits(t)
			d.exec(defaultBecomesPartition)
			d.insert(2, 1)
			d.kill()
			d.gate.open()
			d.arrive()
			d.finish(i)
		})
	}
}

// Failure mode 100. A rewrite of the table, or of its partitions, is no event.
func TestATableThatIsWrittenAnew(t *testing.T) {
	t.Parallel()
	const halves = `; CREATE TABLE a PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2200-01-01');
		CREATE TABLE b PARTITION OF outbox FOR VALUES FROM ('2200-01-01') TO ('2300-01-01')`
	split := `ALTER TABLE outbox SPLIT PARTITION a INTO (PARTITION a1 FOR VALUES FROM ('2020-01-01') TO ('2021-01-01'), PARTITION a2 FOR VALUES FROM ('2021-01-01') TO ('2200-01-01'))`
	for name, c := range map[string]struct {
		since         int
		table, change string
	}{
		"VACUUM FULL":               {14, ``, `VACUUM FULL outbox`},
		"CLUSTER":                   {14, ``, `CLUSTER outbox USING outbox_pkey`},
		"ALTER COLUMN TYPE":         {14, ``, `ALTER TABLE outbox ALTER COLUMN type TYPE varchar(99)`},
		"REPACK":                    {19, ``, `REPACK outbox`},
		"REPACK (CONCURRENTLY)":     {19, ``, `REPACK (CONCURRENTLY) outbox`},
		"VACUUM FULL of partitions": {14, byTime, `VACUUM FULL outbox`},
		"REPACK of a partition":     {19, byTime, `REPACK (CONCURRENTLY) outbox_default`},
		"SPLIT PARTITION":           {19, byTime + halves, split},
		"MERGE PARTITIONS":          {19, byTime + halves, `ALTER TABLE outbox MERGE PARTITIONS (a, b) INTO c`},
	} {
		for _, publication := range []string{"", insertsOnly, forAllTables} {
			t.Run(name, func(t *testing.T) {
				d := outbox(t)
				d.needs(t, c.since)
				if c.table != "" {
					d.exec(c.table)
				}
				if publication != "" {
					d.exec(publication)
				}
				i := d.run().streams()
				d.publish(3, 1)
				d.exec(c.change)
				d.publish(2, 1)
				d.finish(i)
			})
		}
	}
}

// moving is an outbox in partitions, as on the wire.
var moving = relation(1, "outbox")

// gone is a deletion of the row with the id, came an insertion.
func gone(id string, lsn pg.LSN, seq uint32) *wal.Message { return named(wal.Delete, id, lsn, seq) }
func came(id string, lsn pg.LSN, seq uint32) *wal.Message { return named(wal.Insert, id, lsn, seq) }

func named(kind wal.Kind, id string, lsn pg.LSN, seq uint32) *wal.Message {
	m := row(kind, moving, lsn, seq)
	m.Row.Values[0].Data = []byte(id)
	return m
}

// inPartitions tells the intake that the outbox is partitioned.
func inPartitions(in *intake) *intake {
	in.tables.looks.Store(&look{tables: []catalog.TableInfo{{OID: moving.OID, Partitioned: true}}})
	return in
}

func TestIntakeRecognisesMoves(t *testing.T) {
	for name, c := range map[string]struct {
		messages []*wal.Message
		events   []string
	}{
		"a move":               {[]*wal.Message{gone("a", 10, 0), came("a", 10, 1), came("b", 10, 2), commit(15)}, []string{"b"}},
		"moves, one by one":    {[]*wal.Message{gone("a", 10, 0), came("a", 10, 1), gone("b", 10, 2), came("b", 10, 3), commit(15)}, nil},
		"deletions first":      {[]*wal.Message{gone("a", 10, 0), gone("b", 10, 1), gone("c", 10, 2), came("b", 10, 3), came("a", 10, 4), came("d", 10, 5), came("c", 10, 6), commit(15)}, []string{"d"}},
		"one id, two rows":     {[]*wal.Message{gone("a", 10, 0), gone("a", 10, 1), came("a", 10, 2), came("a", 10, 3), came("a", 10, 4), commit(15)}, []string{"a"}},
		"inserted and deleted": {[]*wal.Message{came("a", 10, 0), gone("a", 10, 1), came("b", 10, 2), gone("b", 10, 3), commit(15)}, []string{"a", "b"}},
		"and moved besides":    {[]*wal.Message{came("a", 10, 0), gone("a", 10, 1), came("a", 10, 2), commit(15)}, []string{"a"}},
		"another transaction":  {[]*wal.Message{gone("a", 10, 0), commit(15), came("a", 20, 0), commit(25)}, []string{"a"}},
		"cut and sent again":   {[]*wal.Message{gone("a", 10, 0), came("x", 10, 1), again(5), gone("a", 10, 0), came("x", 10, 1), came("a", 10, 2), commit(15)}, []string{"x"}},
		"cut behind the move": {[]*wal.Message{gone("a", 10, 0), came("a", 10, 1), came("x", 10, 2), again(5),
			gone("a", 10, 0), came("a", 10, 1), came("x", 10, 2), came("a", 10, 3), commit(15)}, []string{"x", "a"}},
		"sent again as a whole": {[]*wal.Message{came("x", 10, 0), commit(15), gone("a", 20, 0), came("a", 20, 1), commit(25), came("y", 30, 0), commit(35), again(5),
			came("x", 10, 0), commit(15), gone("a", 20, 0), came("a", 20, 1), commit(25), came("y", 30, 0), commit(35)}, []string{"x", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			in, _ := testIntake(t, transform.UpdateWarn)
			if got := accepted(t, inPartitions(in), c.messages...); !slices.Equal(got, c.events) {
				t.Errorf("took in %v, want %v", got, c.events)
			}
		})
	}
}

// A table without partitions has no moves: a row deleted and inserted again is an event,
// as with Debezium.
func TestIntakeTakesARowThatIsInsertedAnew(t *testing.T) {
	in, _ := testIntake(t, transform.UpdateFatal)
	if got := accepted(t, in, gone("a", 10, 0), came("a", 10, 1), commit(15)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("took in %v, want a", got)
	}
}

// Beyond the bound of remembered deletions a row is published rather than lost, and
// on_update: fatal says how to go on. The last deletion is always remembered, so moves
// by UPDATE are known.
func TestIntakeBeyondWhatItRemembers(t *testing.T) {
	many := []*wal.Message{gone("a", 10, 0), gone("b", 10, 1), gone("c", 10, 2), gone("d", 10, 3)}
	in, m := testIntake(t, transform.UpdateWarn)
	in.moves.Limit = 2
	got := accepted(t, inPartitions(in), append(many, came("d", 10, 4), came("c", 10, 5), came("b", 10, 6), came("a", 10, 7),
		gone("e", 10, 8), came("e", 10, 9), commit(15))...)
	if !slices.Equal(got, []string{"c"}) || len(m.ignored) != 5+4 {
		t.Errorf("took in %v and ignored %v, want c", got, m.ignored)
	}
	in, _ = testIntake(t, transform.UpdateFatal)
	in.moves.Limit = 2
	accepted(t, inPartitions(in), many...)
	err := in.accept(t.Context(), came("c", 10, 5))
	if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
		t.Errorf("accept = %v", err)
	}
}

// With exactly_once a checkpoint may be within a transaction: deletions before its place
// count all the same.
func TestIntakeRecognisesMovesBehindACheckpointWithinTheTransaction(t *testing.T) {
	in := inPartitions(recalled(t))
	got := accepted(t, in, named(wal.Insert, "x", 10, 0), commit(15), gone("a", 20, 0), came("y", 20, 1), came("a", 20, 2), came("z", 20, 3), commit(25))
	if !slices.Equal(got, []string{"z"}) || in.tracker.InFlight() != 1 {
		t.Errorf("took in %v, want z", got)
	}
}

// An earlier run took a move for an event: with less memory, or in an earlier
// version. Its checkpoint is believed all the same.
func TestIntakeBelievesACheckpointOfAMove(t *testing.T) {
	in := inPartitions(recalled(t))
	got := accepted(t, in, named(wal.Insert, "x", 10, 0), commit(15), gone("a", 20, 0), came("a", 20, 1), came("b", 20, 2), commit(25))
	if !slices.Equal(got, []string{"b"}) {
		t.Errorf("took in %v, want b", got)
	}
	in, _ = testIntake(t, transform.UpdateWarn)
	past := checkpoint.Past{Slot: 5, Start: 10, Known: 25, Since: checkpoint.Landmark{Commit: 20, XID: 20}}
	must.OK(t, inPartitions(in).resume(past))
	got = accepted(t, in, gone("a", 20, 0), came("a", 20, 1), commit(25), came("b", 30, 0), commit(35))
	if !slices.Equal(got, []string{"b"}) {
		t.Errorf("took in %v, want b", got)
	}
}

// Failure mode 99. If moves are untold, run says so once.
func TestRunWarnsOfMovesThatNothingTells(t *testing.T) {
	d := outbox(t)
	d.exec(byFlag)
	d.exec(insertsOnly)
	const warning = "rows that move to another partition will be published again"
	i := d.run().streams()
	d.publish(1, 1)
	d.kill()
	d.publish(1, 1)
	i.stop()
	if got := i.logs.FilterMessage(warning).All(); len(got) != 1 || got[0].ContextMap()["remedy"] == "" {
		t.Errorf("warned %v, want once with a remedy", got)
	}
	d.exec(`ALTER PUBLICATION cdc_outbox SET (publish = 'insert, delete')`)
	i = d.run().streams()
	d.publish(1, 1)
	d.finish(i)
	if n := i.logs.FilterMessage(warning).Len(); n != 0 {
		t.Error("warned of moves that are told")
	}
}
