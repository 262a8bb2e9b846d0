package retention_test

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestPartitionsComeAndGo(t *testing.T) {
	withAndWithoutDefault(t, func(t *testing.T, schema string, withDefault bool) {
		k := start(t, schema+oldPartition+`;
			INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', 'old', '2020-01-01 12:00+00')`)
		await.Until(k.t, "partitions for today and the next two days", func() bool {
			return k.value(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass AND inhrelid::regclass::text <> 'outbox_default'`) >= 3
		})
		k.insert("young", "-1 hour")
		k.confirmAll() // up to here the old partition may be detached
		await.Until(k.t, "the old partition to be detached", func() bool { k.confirmAll(); return k.detached() })
		k.gone()
		if got := k.count("type = 'young'"); got != 1 {
			t.Error("the young row went")
		}
		await.Until(k.t, "word of it", func() bool { return k.observer.dropped.Load() == 1 })
		await.Until(k.t, "word of all that were created", func() bool { // a fourth at midnight
			return k.observer.created.Load() == k.value(`SELECT count(*) FROM pg_inherits
				WHERE inhparent = 'outbox'::regclass AND inhrelid::regclass::text <> 'outbox_default'`)
		})
	})
}

// TestDetachedPartitionWaitsForConfirmation detaches a partition with an unpublished
// event, and restarts in between.
func TestDetachedPartitionWaitsForConfirmation(t *testing.T) {
	k := start(t, outbox.PartitionedSchema+oldPartition)
	k.passes(1)
	k.confirmAll()
	k.passes(1)
	if _, err := k.conn.Exec(t.Context(), `INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)
		VALUES ('a', '1', 'late', '2020-01-01 12:00+00')`); err != nil {
		await.Until(k.t, "the partition to be detached", k.detached)
	}
	k.passes(3)
	if k.there() != 1 {
		t.Fatal("the partition was dropped although its events are not confirmed")
	}
	k.gone()
}

// TestAttachedAgain is a detached partition, attached again by an operator, with an
// unpublished event.
func TestAttachedAgain(t *testing.T) {
	k := start(t, outbox.PartitionedSchema+`; DROP TABLE outbox_default`+oldPartition)
	k.passes(4) // the expiry is known
	k.confirmAll()
	await.Until(k.t, "the partition to be detached", k.detached)
	k.passes(4) // the detached partition is known, but not confirmed
	k.exec(`ALTER TABLE outbox ATTACH PARTITION outbox_p20200101 FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	before := k.end()
	k.passes(4)
	k.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', 'late', '2020-01-01 12:00+00')`,
		`ALTER TABLE outbox DETACH PARTITION outbox_p20200101`)
	k.confirmed.Store(before)
	k.passes(3)
	if k.there() != 1 {
		t.Fatal("the partition was dropped although its event is not confirmed")
	}
	k.gone()
}

// TestOperatorsCommentStays: the mark of a detached partition goes behind the
// comment, and is removed alone.
func TestOperatorsCommentStays(t *testing.T) {
	const note = "of the billing team''s; ask before you touch it \\"
	withAndWithoutDefault(t, func(t *testing.T, schema string, withDefault bool) {
		k := start(t, schema+oldPartition+`; COMMENT ON TABLE outbox_p20200101 IS '`+note+`'`)
		k.passes(4) // the expiry is known
		k.confirmAll()
		await.Until(k.t, "the partition to be detached", k.detached)
		if k.value(`SELECT count(*) FROM pg_description WHERE description LIKE '`+strings.ReplaceAll(note, `\`, `\\`)+`' || E'\n' || 'cdc-outbox: %'`) != 1 {
			t.Error("the comment is not the operator's with the mark behind it")
		}
		k.exec(`ALTER TABLE outbox ATTACH PARTITION outbox_p20200101 FOR VALUES FROM ('2120-01-01 00:00+00') TO ('2120-01-02 00:00+00')`)
		await.Until(k.t, "the mark to go", func() bool {
			return k.value(`SELECT count(*) FROM pg_description WHERE description = '`+note+`'`) == 1
		})
	})
}

// TestMarkOfAPartitionThatIsKeptGoes: a partition that an operator detaches later
// is not ours to drop.
func TestMarkOfAPartitionThatIsKeptGoes(t *testing.T) {
	comment := `cdc-outbox: old partition of "public"."outbox", to be dropped when all its events are published`
	k := start(t, outbox.PartitionedSchema+`; DROP TABLE outbox_default;
		CREATE TABLE outbox_later PARTITION OF outbox FOR VALUES FROM ('2120-01-01 00:00+00') TO ('2120-01-02 00:00+00');
		COMMENT ON TABLE outbox_later IS '`+comment+`'`)
	await.Until(k.t, "the mark to go", func() bool {
		return k.value(`SELECT count(*) FROM pg_description WHERE description = '`+comment+`'`) == 0
	})
}

// TestPartitionsOfSomebodyElse are longer than ours, of another schema, and
// partitioned themselves: failed creation keeps no old partition.
func TestPartitionsOfSomebodyElse(t *testing.T) {
	k := start(t, outbox.PartitionedSchema+`; DROP TABLE outbox_default; CREATE SCHEMA parts;
		CREATE TABLE parts.y2020 PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
		CREATE TABLE y2021 PARTITION OF outbox FOR VALUES FROM ('2021-01-01') TO ('2022-01-01') PARTITION BY RANGE (created_at);
		CREATE TABLE y2021h1 PARTITION OF y2021 FOR VALUES FROM ('2021-01-01') TO ('2021-07-01');
		CREATE TABLE ever PARTITION OF outbox FOR VALUES FROM ('2022-01-01') TO (MAXVALUE)`)
	await.Until(k.t, "the old partitions to go", func() bool {
		k.confirmAll()
		return k.value(`SELECT count(*) FROM pg_class WHERE relname IN ('y2020', 'y2021', 'y2021h1')`) == 0
	})
	if err := k.failure(); !strings.Contains(failure.RemedyOf(err), "partitions_ahead: 0") {
		t.Errorf("failed with %v, remedy %q", err, failure.RemedyOf(err))
	}
}

// A former default partition may have been made the partition for the rows' times,
// today's among them: partitions are created for later days.
func TestPartitionForMoreThanADay(t *testing.T) {
	k := start(t, outbox.PartitionedSchema+`; ALTER TABLE outbox DETACH PARTITION outbox_default; ALTER TABLE outbox_default RENAME TO outbox_first;
		CREATE TABLE outbox_default PARTITION OF outbox DEFAULT;
		DO $$ BEGIN EXECUTE format('ALTER TABLE outbox ATTACH PARTITION outbox_first FOR VALUES FROM (%L) TO (%L)',
			date_trunc('day', now(), 'UTC') - interval '3 days', date_trunc('day', now(), 'UTC') + interval '1 day'); END $$`)
	await.Until(k.t, "partitions for the next days", func() bool {
		if err := k.observer.last(); err != nil {
			t.Fatal(err)
		}
		return k.value(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass`) >= 4
	})
}

// TestBoundThatIsNoTime: partitions with bounds that nearly look like times are left
// alone.
func TestBoundThatIsNoTime(t *testing.T) {
	k := startWith(t, `CREATE TABLE outbox (id text, created_at timestamptz) PARTITION BY RANGE (id);
		CREATE TABLE low PARTITION OF outbox FOR VALUES FROM ('1000') TO ('2020-week-1');
		CREATE TABLE high PARTITION OF outbox FOR VALUES FROM ('2020-week-1') TO ('9999-99-')`,
		func(o *retention.Parts) { o.PartitionsAhead = 0 })
	await.Until(k.t, "passes", func() bool { k.confirmAll(); return k.observer.passed.Load() > 5 })
	if err := k.observer.last(); err != nil {
		t.Error(err)
	}
	if k.value(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass`) != 2 {
		t.Error("a partition went")
	}
}

// TestDefaultPartitionKeepsItsRows: events from the time before the first partition,
// or of a pause in the creation, are no failure.
func TestDefaultPartitionKeepsItsRows(t *testing.T) {
	k := startWith(t, outbox.PartitionedSchema+`; INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('a', '1', 'today')`, forLong)
	await.Until(k.t, "the partitions of the days to come", func() bool { return k.observer.created.Load() >= 2 })
	k.passes(5)
	if err := k.observer.last(); err != nil {
		t.Error(err)
	}
}

// TestPartitionsThatNeverGetOld are an error, or an operator would expect them to go.
func TestPartitionsThatNeverGetOld(t *testing.T) {
	for _, by := range []string{"LIST (aggregatetype)", "HASH (id)"} {
		k := startWith(t, `CREATE TABLE outbox (id uuid, aggregatetype text, created_at timestamptz) PARTITION BY `+by,
			func(o *retention.Parts) { o.PartitionsAhead = 0 })
		if err := k.failure(); !strings.Contains(err.Error(), "not by ranges of time") {
			t.Errorf("%s: failed with %v", by, err)
		}
	}
}

// oldPartition is an expired partition.
const oldPartition = `;
	CREATE TABLE outbox_p20200101 PARTITION OF outbox FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`

// detached tells whether oldPartition is a partition no more.
func (k kept) detached() bool {
	k.t.Helper()
	return k.value(`SELECT count(*) FROM pg_inherits WHERE inhrelid = to_regclass('outbox_p20200101')`) == 0
}

// TestDetachingYieldsToWriters: while a transaction with events is open, other
// writers go on, and beside a default partition the old partition stays.
func TestDetachingYieldsToWriters(t *testing.T) {
	withAndWithoutDefault(t, func(t *testing.T, schema string, withDefault bool) {
		k := start(t, schema+oldPartition)
		await.Until(k.t, "the present partition", func() bool { return k.observer.created.Load() >= 3 })
		open := k.connect()
		open.exec(`BEGIN`)
		open.insert("open", "-1 hour")
		k.exec(`SET lock_timeout = '30s'`)
		await.Until(k.t, "failed passes", func() bool { k.confirmAll(); return k.observer.failed.Load() > 0 })
		for range 20 {
			k.insert("beside", "-1 hour")
		}
		if withDefault && k.there() != 1 {
			t.Error("the partition went beside a writer")
		}
		open.exec(`COMMIT`)
		k.gone()
		if got := k.count("type IN ('open', 'beside')"); got != 21 {
			t.Errorf("%d young rows are left of 21", got)
		}
	})
}
