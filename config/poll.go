package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
)

// Poll says how ModePoll reads the tables.
type Poll struct {
	// BatchSize is the most rows that are claimed at a time.
	BatchSize int `yaml:"batch_size"`
	// Interval is the wait after a poll that found nothing; it doubles with
	// each such poll up to MaxInterval.
	Interval    time.Duration `yaml:"interval"`
	MaxInterval time.Duration `yaml:"max_interval"`
	// Lanes is into how many parts the keys are divided among the instances,
	// which must agree on it.
	Lanes int `yaml:"lanes"`
	// Notify is the channel on which the trigger of setup tells of new rows;
	// empty means that there is only the interval.
	Notify string `yaml:"notify"`
	// AfterPublish is AfterPublishMark or AfterPublishDelete.
	AfterPublish string `yaml:"after_publish"`
	// OrderBy are the columns that order a key's events; empty means detect.
	OrderBy []string `yaml:"order_by"`
	// Published is the boolean column that marks a published row, PublishedAt
	// the one for the time, which may be missing.
	Published   string `yaml:"published"`
	PublishedAt string `yaml:"published_at"`
	// ClaimTimeout is the longest time that rows are held while their events
	// are delivered.
	ClaimTimeout time.Duration `yaml:"claim_timeout"`
}

// Values of Poll.AfterPublish.
const (
	AfterPublishMark   = "mark"
	AfterPublishDelete = "delete"
)

func defaultPoll() Poll {
	return Poll{
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

// choosePolling turns off what belongs to a slot: there is no position to keep,
// nor one to put into headers.
func (l *loader) choosePolling() {
	if l.cfg.Source.Mode != ModePoll {
		return
	}
	if _, set := l.given["event.position_headers"]; !set {
		l.cfg.Event.PositionHeaders = false
	}
	if _, set := l.given["checkpoint.store"]; !set {
		l.cfg.Checkpoint.Store = StoreNone
	}
}

func (l *loader) validatePoll() {
	p := &l.cfg.Source.Poll
	l.wantNumber("source.poll.batch_size", p.BatchSize, 1, 100_000)
	l.wantNumber("source.poll.lanes", p.Lanes, 1, 1024)
	l.wantBetween("source.poll.interval", p.Interval, time.Millisecond, time.Minute)
	l.wantBetween("source.poll.max_interval", p.MaxInterval, time.Millisecond, 10*time.Minute)
	if p.MaxInterval < p.Interval {
		l.report("source.poll.max_interval", "is shorter than source.poll.interval", "raise it; 1s is the default")
	}
	l.wantBetween("source.poll.claim_timeout", p.ClaimTimeout, 100*time.Millisecond, 10*time.Minute)
	l.wantOneOf("source.poll.after_publish", p.AfterPublish, AfterPublishMark, AfterPublishDelete)
	if len(p.Notify) > sqltext.MaxName {
		l.report("source.poll.notify", "is longer than a channel's name may be", "use at most 63 bytes")
	}
	if slices.Contains(p.OrderBy, "") {
		l.report("source.poll.order_by", "has an empty item", "name columns, for example [seq]")
	}
	if l.cfg.Source.Mode != ModePoll {
		return
	}
	if l.cfg.Event.PositionHeaders {
		l.report("event.position_headers", "needs a position in the log, which source.mode: poll does not know", "remove it, or set it to false")
	}
	if l.cfg.Checkpoint.Store != StoreNone {
		l.report("checkpoint.store", "has no effect with source.mode: poll: the table is the state", "remove it, or set it to none")
	}
	if l.cfg.Source.Snapshot == SnapshotInitial {
		l.report("source.snapshot", "has no effect with source.mode: poll, which publishes every row that is not marked as published", "remove it")
	}
}

func (l *loader) wantNumber(key string, got, lowest, highest int) {
	if got < lowest || got > highest {
		l.report(key, fmt.Sprintf("must be between %d and %d", lowest, highest), "write a number within these bounds")
	}
}
