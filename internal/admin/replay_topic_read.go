package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// reading says how topics are read.
func (r *topicReplay) reading() audit.ReadOptions {
	return audit.ReadOptions{
		Patience: r.opts.Timeout, Note: r.note, Stuck: r.cluster.stuck, Counts: (&replayed{name: r.opts.Name}).made,
		Allow: func(topic string) string {
			return r.cluster.cfg.Tools().Allow("Read --operation DescribeConfigs", topic)
		},
	}
}

// choose finds the records, and those that an earlier replay of the name has
// published.
func (r *topicReplay) choose(ctx context.Context) (err error) {
	if r.logs, err = audit.Open(ctx, r.cluster.client, r.opts.From, r.reading()); err != nil {
		return err
	}
	if len(r.logs) == 0 {
		return failure.Configf("correct --from-topic", "topic %q does not exist", r.opts.From)
	}
	if err := within(r.opts.From, r.logs, r.opts.Offsets); err != nil {
		return err
	}
	made := audit.NewTopics(ctx, r.cluster.client, r.ids, r.reading(), letterTopics(r.cfg)...)
	defer r.tell(made)()
	if err := made.Beside(func(ctx context.Context) error {
		if r.to, err = made.Index(r.opts.To); err != nil {
			return err
		}
		return r.read(ctx)
	}); err != nil {
		return err
	}
	if err := made.Finish(ctx); err != nil {
		return err
	}
	counts, err := r.ids.Compare(func(*audit.Entry) bool { return true })
	if err != nil {
		return err
	}
	if counts.Records > 0 {
		if err := forgets(made, r.reading(), r.opts.Name, "--offsets, --since, --id or --key"); err != nil {
			return err
		}
	}
	r.report.Records, r.report.Before, r.report.ToPublish, r.report.Repeated = counts.Rows, counts.Found, counts.Missing, counts.Twins
	return r.limits(ctx)
}

// read reads the topic that has the records.
func (r *topicReplay) read(ctx context.Context) error {
	var starts map[int32]int64
	if !r.opts.Since.IsZero() {
		var err error
		if starts, err = audit.Since(ctx, r.logs, r.opts.From, r.opts.Since, r.reading()); err != nil {
			return err
		}
	}
	for _, log := range r.logs {
		low, high, _ := r.span(log, starts[log.Number()])
		r.ahead.Add(max(0, high-low))
	}
	for _, log := range r.logs {
		if err := r.readPartition(ctx, log, starts[log.Number()]); err != nil {
			return err
		}
	}
	for _, left := range []struct {
		what string
		of   unseen
	}{{"id", r.asked}, {"key", r.keys}} {
		if len(left.of) > 0 {
			return failure.Configf("write it as the record has it; of records that the topic has no more, the table may have the rows: leave out --from-topic",
				"topic %q has no record, of those chosen, with the %s %s", r.opts.From, left.what, left.of)
		}
	}
	if r.opts.LSNs != (LSNs{}) && !r.within && len(r.lost) == 0 {
		return failure.Configf("take the positions from cdc-lsn of its records: they are of a single server",
			"topic %q has no record, of those chosen, with a cdc-lsn in the range: %s", r.opts.From, r.seen)
	}
	return nil
}

// tell writes lines about the progress of the reads until stop is called.
func (r *topicReplay) tell(made *audit.Topics) (stop func()) {
	began := time.Now()
	return audit.Telling(func() {
		passed, ahead := r.passed.Load(), r.ahead.Load()
		_, others := made.Progress()
		r.note(fmt.Sprintf("%s: read %d records of topic %s, %d are ahead%s; %d records of the topics that replay %s publishes to are ahead",
			time.Since(began).Round(time.Second), passed, r.opts.From, ahead, audit.Estimate(time.Since(began), passed, ahead), others, plain(r.opts.Name)))
	})
}

// span has the offsets of a partition to be read, high excluded. cut tells that records
// before low were deleted.
func (r *topicReplay) span(log *kafkalog.Partition, from int64) (low, high int64, cut bool) {
	start, end := log.Bounds()
	low, high = 0, end
	if len(r.opts.Offsets) > 0 {
		low, high = end, 0
		for _, o := range r.opts.Offsets {
			if o.Partition == log.Number() {
				low, high = min(low, o.From), max(high, min(o.To, end-1)+1)
			}
		}
		if low >= high {
			return 0, 0, false
		}
	}
	return max(start, low, from), high, low < start
}

// readPartition chooses records of a partition. The order among partitions is that of
// the times, and within one that of the offsets, so a record has the latest time of
// those up to it.
func (r *topicReplay) readPartition(ctx context.Context, log *kafkalog.Partition, from int64) error {
	low, high, cut := r.span(log, from)
	if cut {
		start, _ := log.Bounds()
		if err := r.deleted(ctx, log, start); err != nil {
			return err
		}
	}
	var latest int64
	_, err := audit.NewReader(r.cluster.client, log, r.opts.From, r.reading()).Walk(ctx, low, high, func(records []*kgo.Record, next int64) error {
		r.passed.Add(next - low)
		r.ahead.Add(low - next)
		low = next
		for _, rec := range records {
			latest = max(latest, rec.Timestamp.UnixMicro())
			id, chosen := r.chooses(rec)
			if !chosen {
				continue
			}
			err := r.ids.Row(&audit.Entry{
				Key: audit.KeyOf(id), Order: [catalog.OrderNumbers]int64{latest, rec.Offset}, At: rec.Timestamp.UnixMicro(),
				Place: audit.Place{Table: uint32(rec.Partition)}, Topic: r.to,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// chooses tells whether the record is one of those asked for, and its id.
func (r *topicReplay) chooses(rec *kgo.Record) (id []byte, yes bool) {
	id, _ = transform.Header(rec.Headers, transform.HeaderID)
	switch {
	case rec.Timestamp.Before(r.opts.Since), !r.opts.Until.IsZero() && !rec.Timestamp.Before(r.opts.Until),
		len(r.opts.Keys) > 0 && (rec.Key == nil || !slices.Contains(r.opts.Keys, string(rec.Key))),
		len(r.opts.IDs) > 0 && (id == nil || !slices.Contains(r.opts.IDs, string(id))),
		len(r.opts.Offsets) > 0 && !slices.ContainsFunc(r.opts.Offsets, func(o OffsetRange) bool {
			return o.Partition == rec.Partition && o.From <= rec.Offset && rec.Offset <= o.To
		}):
		return nil, false
	case id == nil:
		r.report.Others++
		return nil, false
	}
	if _, again := transform.Header(rec.Headers, transform.HeaderReplay); again {
		r.report.Replays++
		return nil, false
	}
	if r.opts.LSNs != (LSNs{}) {
		at, in, ok := r.opts.LSNs.has(rec)
		if !ok {
			r.without++
		} else {
			r.seen.extend(at)
		}
		r.within = r.within || in
		if !in {
			return nil, false
		}
	}
	delete(r.asked, string(id))
	delete(r.keys, string(rec.Key))
	return id, true
}

// deleted notes that records of the range may have been deleted, unless the oldest
// records left are from before it.
func (r *topicReplay) deleted(ctx context.Context, log *kafkalog.Partition, start int64) error {
	if len(r.opts.IDs) > 0 {
		return nil // those that are not found are named
	}
	reader := audit.NewReader(r.cluster.client, log, r.opts.From, r.reading())
	oldest, err := audit.Oldest(ctx, reader, 0)
	if err != nil {
		return err
	}
	if !r.opts.Since.IsZero() && oldest.Before(r.opts.Since) {
		return nil
	}
	if r.opts.LSNs.From != 0 {
		records, _, err := reader.Read(ctx, start)
		if err != nil {
			return err
		}
		for _, rec := range records {
			if at, _, ok := r.opts.LSNs.has(rec); ok && at < r.opts.LSNs.From {
				return nil
			}
		}
	}
	r.lost = append(r.lost, fmt.Sprintf("%d (from offset %d, of %s, on)", log.Number(), start, oldest.UTC().Format(time.RFC3339)))
	return nil
}

// limits say why the topic may have had more records of the range.
func (r *topicReplay) limits(ctx context.Context) error {
	settings, err := broker.TopicSettings(ctx, r.cluster.client, r.opts.From, "cleanup.policy")
	say := func(format string, args ...any) {
		r.report.Limits = append(r.report.Limits, fmt.Sprintf(format, args...))
	}
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		say("brokers do not tell whether topic %q is compacted; %s", r.opts.From, r.cluster.cfg.Tools().Allow("DescribeConfigs", r.opts.From))
	case err != nil:
		return fmt.Errorf("ask for the settings of topic %q: %w", r.opts.From, err)
	case strings.Contains(settings["cleanup.policy"], "compact"):
		say("topic %q is compacted: earlier records of a key may be gone", r.opts.From)
	}
	if len(r.lost) > 0 {
		say("topic %q has lost records to retention, of the range perhaps: it has those of partition %s%s", r.opts.From,
			strings.Join(r.lost[:min(len(r.lost), mostNamed)], ", "), further(len(r.lost)-mostNamed))
	}
	if r.without > 0 {
		say("%d records have no cdc-lsn, as those of repair, of a snapshot, or with event.position_headers off: they are left out", r.without)
	}
	return nil
}
