package retention_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// forLong keeps rows for a week, as people do.
func forLong(o *retention.Parts) { o.After = 7 * 24 * time.Hour }

// However long rows are kept, those that are old enough go soon after a start:
// a connector that is started anew each hour would never delete anything.
func TestFirstRowsGoSoonAfterAStart(t *testing.T) {
	k := startWith(t, outbox.Schema+`;
		INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', 'old', now() - interval '8 days')`, forLong)
	k.await("the old row to go", func() bool { k.confirmAll(); return k.count("TRUE") == 0 })
}

// However long rows are kept, partitions are created in time: without one the
// writers fail.
func TestPartitionsAreCreatedInTime(t *testing.T) {
	k := startWith(t, outbox.PartitionedSchema+`; DROP TABLE outbox_default`, func(o *retention.Parts) {
		forLong(o)
		o.PartitionSpan, o.PartitionsAhead = retention.SpanHour, 1
	})
	partitions := func() bool {
		return k.value(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass`) >= 2
	}
	k.await("partitions", partitions)
	k.exec(`DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE ' || string_agg(inhrelid::regclass::text, ',') FROM pg_inherits WHERE inhparent = 'outbox'::regclass); END $$`)
	k.await("partitions that are missing later", partitions)
}

// However long rows are kept, a partition that has expired goes soon.
func TestExpiredPartitionGoesSoon(t *testing.T) {
	k := startWith(t, outbox.PartitionedSchema+`; DROP TABLE outbox_default`+oldPartition, forLong)
	k.await("the partition to go", func() bool {
		k.confirmAll()
		return k.value(`SELECT count(*) FROM pg_class WHERE relname = 'outbox_p20200101'`) == 0
	})
}

// What has failed waits for longer: an attempt may hold writers up.
func TestFailureIsNotRepeatedAtOnce(t *testing.T) {
	k := startWith(t, outbox.Schema, func(o *retention.Parts) {
		forLong(o)
		o.Column = "written_at"
	})
	k.insert("old", "8 days")
	k.await("a failed pass", func() bool { k.confirmAll(); return k.observer.failed.Load() > 0 })
	k.passes(20)
	if n := k.observer.failed.Load(); n != 1 {
		t.Errorf("failed %d times by the 20th look", n)
	}
}

// A table that has a partition's name and is no partition must be reported: the
// rows of that time have no place.
func TestPartitionsNameIsTaken(t *testing.T) {
	p, err := outbox.Table{}.Partition(outbox.Daily, time.Now().Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	k := start(t, outbox.PartitionedSchema+`; CREATE TABLE `+p.Name+` (id int)`)
	k.await("a failed pass", func() bool { return k.observer.failed.Load() > 0 })
	err = k.observer.last()
	if !strings.Contains(err.Error(), p.Name) || !strings.Contains(failure.RemedyOf(err), "ATTACH") {
		t.Errorf("failed with %v, remedy %q", err, failure.RemedyOf(err))
	}
	k.await("the other partitions", func() bool { return k.observer.created.Load() >= 2 })
}
