package poll

import (
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Options are the section source.poll of the configuration.
type Options struct {
	// BatchSize is the most rows claimed at a time.
	BatchSize int `yaml:"batch_size"`
	// Interval is the wait after a poll without rows; it doubles with each such poll
	// up to MaxInterval.
	Interval    time.Duration `yaml:"interval"`
	MaxInterval time.Duration `yaml:"max_interval"`
	// Lanes is into how many parts the keys are divided among the instances: the
	// same for all.
	Lanes int `yaml:"lanes"`
	// Notify is the channel of the trigger, created by setup, that tells of new rows.
	// Empty: the connector polls by the interval only.
	Notify string `yaml:"notify"`
	// AfterPublish is AfterPublishMark or AfterPublishDelete.
	AfterPublish string `yaml:"after_publish"`
	// OrderBy are the columns for the order of a key's events; empty means detect.
	OrderBy []string `yaml:"order_by"`
	// Published is the boolean column marking published rows, PublishedAt the column
	// for the time. Only the defaults may be missing.
	Published   string `yaml:"published"`
	PublishedAt string `yaml:"published_at"`
	// ClaimTimeout is the longest time rows are held while their events are
	// delivered.
	ClaimTimeout time.Duration `yaml:"claim_timeout"`
}

// Values of Options.AfterPublish.
const (
	AfterPublishMark   = "mark"
	AfterPublishDelete = "delete"
)

// DefaultOptions are those of an empty section.
func DefaultOptions() Options {
	return Options{
		BatchSize:    1000,
		Interval:     50 * time.Millisecond,
		MaxInterval:  time.Second,
		Lanes:        16,
		Notify:       "cdc_outbox",
		AfterPublish: AfterPublishMark,
		Published:    "published",
		PublishedAt:  "published_at",
		ClaimTimeout: 10 * time.Second,
	}
}

// Validate reports impossible options.
func (o *Options) Validate(report setting.Report) {
	report.Number("source.poll.batch_size", o.BatchSize, 1, 100_000)
	report.Number("source.poll.lanes", o.Lanes, 1, 1024)
	report.Between("source.poll.interval", o.Interval, time.Millisecond, time.Minute)
	report.Between("source.poll.max_interval", o.MaxInterval, time.Millisecond, 10*time.Minute)
	if o.MaxInterval < o.Interval {
		report.Problem("source.poll.max_interval", "is shorter than source.poll.interval", "raise it; 1s is the default")
	}
	report.Between("source.poll.claim_timeout", o.ClaimTimeout, 100*time.Millisecond, 10*time.Minute)
	report.OneOf("source.poll.after_publish", o.AfterPublish, AfterPublishMark, AfterPublishDelete)
	if len(o.Notify) > pgsql.MaxName {
		report.Problem("source.poll.notify", "is longer than a channel's name may be", "use at most 63 bytes")
	}
	if slices.Contains(o.OrderBy, "") {
		report.Problem("source.poll.order_by", "has an empty item", "name columns, for example [seq]")
	}
}
