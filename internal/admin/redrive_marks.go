package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// mark finds the letters that were redriven before, by the headers of the records in
// their topics.
func (r *redrive) mark(ctx context.Context) error {
	since := make([]int64, len(r.topics)) // the time of the first letter; 0: none
	for _, letters := range r.places {
		for _, c := range letters {
			if c.fate == fatePublish && (since[c.topic] == 0 || c.at < since[c.topic]) {
				since[c.topic] = c.at
			}
		}
	}
	for topic, at := range since {
		if at == 0 {
			continue
		}
		if err := r.markTopic(ctx, int32(topic), time.UnixMilli(at).Add(-audit.Skew)); err != nil {
			return err
		}
	}
	return nil
}

// markTopic reads a topic from the time on. A record has the time of its redrive.
func (r *redrive) markTopic(ctx context.Context, topic int32, since time.Time) error {
	name := r.topics[topic]
	opts := r.reading()
	logs, err := audit.Open(ctx, r.cluster.client, name, opts)
	if err != nil || len(logs) == 0 { // run may create it, or wait for it
		return err
	}
	starts, err := audit.Since(ctx, logs, name, since, opts)
	if err != nil {
		return err
	}
	r.note(fmt.Sprintf("looking for letters redriven before: reading topic %q from %s on", name, since.UTC().Format(time.RFC3339)))
	for _, log := range logs {
		start, end := log.Bounds()
		reader := audit.NewReader(r.cluster.client, log, name, opts)
		_, err := reader.Walk(ctx, max(start, starts[log.Number()]), end, func(records []*kgo.Record, _ int64) error {
			for _, rec := range records {
				r.markRecord(rec)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.doubt(ctx, topic, logs)
}

// markRecord marks the letter that the record is of. The topic of the letters may
// have been made again: then another letter has the place.
func (r *redrive) markRecord(rec *kgo.Record) {
	of, _ := transform.Header(rec.Headers, transform.HeaderRedrive)
	id, _ := transform.Header(rec.Headers, transform.HeaderID)
	at, ok := parsePlace(string(of))
	if !ok {
		return
	}
	letters := r.places[at.Partition]
	i, found := slices.BinarySearchFunc(letters, at.Offset, func(c chosen, offset int64) int { return cmp.Compare(c.offset, offset) })
	if found && letters[i].fate != fateRefused && letters[i].identity == r.identity(rec.Topic, rec.Key, id) {
		letters[i].fate = fateDone
	}
}

// parsePlace reads what LetterPlace.String writes.
func parsePlace(text string) (at LetterPlace, ok bool) {
	partition, offset, ok := strings.Cut(text, "/")
	p, partitionErr := strconv.ParseInt(partition, 10, 32)
	o, offsetErr := strconv.ParseInt(offset, 10, 64)
	return LetterPlace{int32(p), o}, ok && partitionErr == nil && offsetErr == nil
}

// doubt lets the letters be uncertain whose records may have been deleted since they
// were redriven.
func (r *redrive) doubt(ctx context.Context, topic int32, logs []*kafkalog.Partition) error {
	name := r.topics[topic]
	settings, err := broker.TopicSettings(ctx, r.cluster.client, name, "cleanup.policy")
	why := ""
	var before int64 // of letters with a time before that; all where why is set
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		why = "brokers do not tell whether it is compacted; " + r.cluster.cfg.Tools().Allow("DescribeConfigs", name)
	case err != nil:
		return fmt.Errorf("ask for the settings of topic %q: %w", name, err)
	case strings.Contains(settings["cleanup.policy"], "compact"):
		why = "it is compacted"
	default:
		begins, err := r.begins(ctx, name, logs)
		if err != nil || begins.IsZero() {
			return err
		}
		before = begins.Add(audit.Skew).UnixMilli()
	}
	n := 0
	for _, letters := range r.places {
		for i := range letters {
			if c := &letters[i]; c.topic == topic && c.fate == fatePublish && (why != "" || c.at < before) {
				n++
				if !r.opts.Uncertain {
					c.fate = fateUncertain
				}
			}
		}
	}
	if n > 0 {
		r.report.Limits = append(r.report.Limits, fmt.Sprintf("%d letters of topic %q may have been redriven before: %s", n, name,
			cmp.Or(why, "its records from before "+time.UnixMilli(before).Add(-audit.Skew).UTC().Format(time.RFC3339)+" are deleted")))
	}
	return nil
}

// begins is the time since which no record was deleted; zero: none ever was. With
// times of their own, records do not tell.
func (r *redrive) begins(ctx context.Context, topic string, logs []*kafkalog.Partition) (latest time.Time, err error) {
	for _, log := range logs {
		if start, _ := log.Bounds(); start > 0 && timed(r.cfg) {
			return time.Now(), nil
		}
		oldest, err := audit.Oldest(ctx, audit.NewReader(r.cluster.client, log, topic, r.reading()), 0)
		if err != nil {
			return latest, err
		}
		if oldest.After(latest) {
			latest = oldest
		}
	}
	return latest, nil
}

// timed tells whether events ask for the times of their records.
func timed(cfg *config.Config) bool {
	return cfg.Event.Timestamp != "" || cfg.Event.RecordTime == transform.RecordTimeCommit
}
