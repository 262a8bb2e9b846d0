package retention

import (
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// Options are the section retention. Retention is off while After is 0.
type Options struct {
	// After is how old a published row is when deleted, or the youngest row of a
	// partition when dropped, by Column and the server's clock; 0 turns retention
	// off.
	After time.Duration `yaml:"after"`
	// Column holds the time of writing. For a partitioned table the partition
	// key counts instead.
	Column string `yaml:"column"`
	// Interval is the least time between two passes through the rows of a table;
	// a pass follows another after a twentieth of After at the earliest.
	// Partitions are looked at this often, and at least every ten seconds.
	Interval time.Duration `yaml:"interval"`
	// PartitionsAhead is the number of partitions kept ready beyond the present,
	// in a partitioned table; 0 creates none.
	PartitionsAhead int `yaml:"partitions_ahead"`
	// PartitionSpan is SpanDay or SpanHour.
	PartitionSpan string `yaml:"partition_span"`
}

// Values of Options.PartitionSpan.
const (
	SpanDay  = "day"
	SpanHour = "hour"
)

// mostPartitionsAhead bounds retention.partitions_ahead: each costs planning
// time.
const mostPartitionsAhead = 1000

// DefaultOptions are the meaning of an empty section.
func DefaultOptions() Options {
	return Options{
		Column:          "created_at",
		Interval:        10 * time.Second,
		PartitionsAhead: 3,
		PartitionSpan:   SpanDay,
	}
}

// Validate reports faults.
func (o *Options) Validate(report setting.Report) {
	report.Between("retention.after", o.After, 0, 10*365*24*time.Hour)
	report.Between("retention.interval", o.Interval, 100*time.Millisecond, 24*time.Hour)
	report.OneOf("retention.partition_span", o.PartitionSpan, SpanDay, SpanHour)
	if o.PartitionsAhead < 0 || o.PartitionsAhead > mostPartitionsAhead {
		report.Problem("retention.partitions_ahead", "must be between 0 and 1000", "3 is the default")
	}
	if strings.TrimSpace(o.Column) == "" || len(o.Column) > pgsql.MaxName {
		report.Problem("retention.column", "is not a column name", "name the column with the time of writing, for example created_at")
	}
}

func (o *Options) span() outbox.Span {
	if o.PartitionSpan == SpanHour {
		return outbox.Hourly
	}
	return outbox.Daily
}
