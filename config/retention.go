package config

import (
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
)

// Retention keeps the outbox tables from growing. It is off while After is 0.
type Retention struct {
	// After is how old a published row is when it is deleted, or the youngest
	// row of a partition when that is dropped; 0 turns retention off.
	After time.Duration `yaml:"after"`
	// Column holds the time of writing; for a partitioned table, whatever it is
	// partitioned by counts instead.
	Column string `yaml:"column"`
	// Interval is the least time between two passes through the rows of a table;
	// a pass follows another after a twentieth of After at the earliest.
	// Partitions are looked at this often, and at least every ten seconds.
	Interval time.Duration `yaml:"interval"`
	// PartitionsAhead is how many partitions beyond the present one are kept
	// ready where the table is partitioned; 0 creates none.
	PartitionsAhead int `yaml:"partitions_ahead"`
	// PartitionSpan is SpanDay or SpanHour.
	PartitionSpan string `yaml:"partition_span"`
}

// Values of Retention.PartitionSpan.
const (
	SpanDay  = "day"
	SpanHour = "hour"
)

// mostPartitionsAhead bounds retention.partitions_ahead: each costs planning
// time.
const mostPartitionsAhead = 1000

func defaultRetention() Retention {
	return Retention{
		Column:          "created_at",
		Interval:        10 * time.Second,
		PartitionsAhead: 3,
		PartitionSpan:   SpanDay,
	}
}

func (l *loader) validateRetention() {
	r := &l.cfg.Retention
	l.wantBetween("retention.after", r.After, 0, 10*365*24*time.Hour)
	l.wantBetween("retention.interval", r.Interval, 100*time.Millisecond, 24*time.Hour)
	l.wantOneOf("retention.partition_span", r.PartitionSpan, SpanDay, SpanHour)
	if r.PartitionsAhead < 0 || r.PartitionsAhead > mostPartitionsAhead {
		l.report("retention.partitions_ahead", "must be between 0 and 1000", "3 is the default")
	}
	if strings.TrimSpace(r.Column) == "" || len(r.Column) > sqltext.MaxName {
		l.report("retention.column", "is not a column name", "name the column with the time of writing, for example created_at")
	}
	if r.After == 0 {
		return
	}
	switch {
	case l.cfg.Source.Mode == ModePoll:
		l.report("retention.after", "is for tables that are read from the log", "set source.poll.after_publish to delete")
	case l.cfg.Checkpoint.Store == StoreNone:
		l.report("retention.after", "needs a checkpoint: without one nobody notices that the slot was recreated, and rows that were not published would be deleted", "set checkpoint.store")
	case len(l.cfg.Source.Tables) == 0:
		l.report("retention.after", "has no table to keep: messages leave nothing behind", "remove it")
	}
}
