package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// TopicReplayOptions are the choices of ReplayTopic.
type TopicReplayOptions struct {
	// From is the topic that has the records. Required.
	From string
	// Since and Until choose records by their time: from Since on, before Until; zero:
	// no bound.
	Since, Until time.Time
	// IDs and Keys are those of the only records chosen; empty: all.
	IDs, Keys []string
	// LSNs choose records by the header cdc-lsn.
	LSNs LSNs
	// Offsets are the only records chosen; empty: all.
	Offsets []OffsetRange
	// Name is that of the replay; see ReplayOptions.
	Name string
	// To is the topic for the records; "": the one that they are in.
	To string
	// Rate is how many records a second are published at most; 0: no limit.
	Rate int
	// Publish publishes them; otherwise ReplayTopic only lists them.
	Publish bool
	// List is how many records are listed at most.
	List int
	// Dir is for the files with ids; "" is the system's directory.
	Dir string
	// Timeout bounds the wait for brokers that do not answer.
	Timeout time.Duration
	// Notes takes messages about the progress.
	Notes io.Writer
}

// TopicReplay says what became of the records chosen.
type TopicReplay struct {
	From string `json:"from"`
	To   string `json:"to"`
	Name string `json:"name"`
	// Records were chosen. Of these, an earlier replay of the name has published
	// Before, Repeated have the id of another, and ToPublish are left.
	Records   int64 `json:"records"`
	Before    int64 `json:"before"`
	Repeated  int64 `json:"repeated"`
	ToPublish int64 `json:"to_publish"`
	// Replays were published by a replay, and Others have no event id: they are
	// left out.
	Replays int64 `json:"replays"`
	Others  int64 `json:"others"`
	// Published, DeadLettered and Skipped count records.
	Published    int64 `json:"published"`
	DeadLettered int64 `json:"dead_lettered"`
	Skipped      int64 `json:"skipped"`
	// Listed are the first to publish, in the order of publication.
	Listed []ReplayRecord `json:"listed"`
	// Limits say why there may have been more records.
	Limits []string `json:"limits"`

	publish bool
}

// ReplayRecord is a record in a list. Long texts are cut.
type ReplayRecord struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	ID        string    `json:"id"`
	Key       string    `json:"key"`
}

// topicReplay publishes records of a topic once more.
type topicReplay struct {
	*notes
	cfg     *config.Config
	opts    TopicReplayOptions
	cluster *cluster
	logs    []*kafkalog.Partition
	ids     *audit.Audit
	to      uint16 // the index of the topic for the records
	asked   unseen // ids
	keys    unseen
	lost    []string // partitions that may have had more of the range
	without int64    // records without a position, where one is asked for
	seen    LSNs     // the positions of the others
	within  bool     // a record has a position in the range
	// passed and ahead count offsets, for the line about the progress.
	passed, ahead atomic.Int64
	out           *writer
	report        *TopicReplay
}

// ReplayTopic publishes the records of a topic once more, byte for byte, each event
// once, in order per key, with a header that names the replay. A record that a replay
// of the name has published is left out. Only committed records are read. The report
// beside an error says what was done until then.
func ReplayTopic(ctx context.Context, cfg *config.Config, opts TopicReplayOptions) (_ *TopicReplay, err error) {
	defer func() { err = interrupted(err) }()
	if opts.To == "" {
		opts.To = opts.From
	}
	switch {
	case cfg.Sink.Kafka == nil:
		return nil, failure.Configf("set sink.kafka", "replay publishes to Kafka, and the sink is stdout")
	case opts.From == cfg.Errors.DeadLetterTopic:
		return nil, failure.Configf("cdc-outbox dead-letters redrive", "--from-topic %q has the dead letters, which are no records of events", opts.From)
	}
	if err := cmp.Or(fitFor(cfg, "--from-topic", opts.From), fitFor(cfg, "--to", opts.To)); err != nil {
		return nil, err
	}
	r := &topicReplay{notes: &notes{to: opts.Notes}, cfg: cfg, opts: opts, cluster: newCluster(cfg), asked: setOf(opts.IDs), keys: setOf(opts.Keys)}
	r.report = &TopicReplay{From: opts.From, To: opts.To, Name: opts.Name, Listed: []ReplayRecord{}, Limits: []string{}, publish: opts.Publish}
	if err := r.cluster.connect(ctx); err != nil {
		return nil, err
	}
	defer r.cluster.client.Close()
	if r.ids, err = audit.New(opts.Dir); err != nil {
		return nil, err
	}
	defer r.ids.Close()
	if opts.Publish {
		held, unlock, err := lockOut(ctx, cfg, "replay")
		if err != nil {
			return nil, err
		}
		defer unlock()
		r.out, err = openWriter(ctx, cfg, writerOptions{
			suffix: "/replay", policy: cfg.Errors.OnBadEvent, metrics: replayedAgain{report: r.report}, rate: opts.Rate, within: opts.Timeout, note: r.note, held: held,
		})
		if err != nil {
			return nil, err
		}
		defer r.out.close()
	}
	if err := r.choose(ctx); err != nil {
		return nil, err
	}
	if !opts.Publish {
		r.cluster.missing(ctx, opts.To, r.note)
		return r.report, r.list(ctx)
	}
	if err := r.write(ctx); err != nil {
		return r.report, err
	}
	return r.report, r.report.err()
}

// err tells that there may have been more records.
func (r *TopicReplay) err() error {
	if len(r.Limits) == 0 {
		return nil
	}
	return failure.Configf("see the lines \"not known\"; if the table has the rows, leave out --from-topic", "topic %q may have had more records than the %d chosen", r.From, r.Records)
}

// groups calls use with the records to publish, in order, in groups of MostGroup and,
// but for a single record, GroupBytes.
func (r *topicReplay) groups(ctx context.Context, use func([]*kgo.Record) error) error {
	pages := newPages(r.cluster.client, r.opts.From, r.logs, r.reading())
	most := audit.MostGroup
	if r.opts.Rate > 0 {
		most = min(most, r.opts.Rate)
	}
	var group []*kgo.Record
	bytes := 0
	err := r.ids.Missing(func(e *audit.Entry) error {
		rec, err := pages.record(ctx, LetterPlace{int32(e.Table), e.Order[1]})
		if err != nil {
			return err
		}
		if id, _ := transform.Header(rec.Headers, transform.HeaderID); audit.KeyOf(id) != e.Key {
			return &failure.Error{Class: failure.Transient, Remedy: "repeat the command", Err: fmt.Errorf("topic %q was deleted and made again meanwhile", r.opts.From)}
		}
		size := sizeOf(rec)
		if len(group) >= most || len(group) > 0 && bytes+size > audit.GroupBytes {
			if err := use(group); err != nil {
				return err
			}
			group, bytes = nil, 0
		}
		group, bytes = append(group, own(rec)), bytes+size
		return nil
	})
	if err != nil || len(group) == 0 {
		return err
	}
	return use(group)
}

// list lists the first records to publish.
func (r *topicReplay) list(ctx context.Context) error {
	err := r.groups(ctx, func(group []*kgo.Record) error {
		for _, rec := range group {
			if len(r.report.Listed) >= r.opts.List {
				return errListed
			}
			id, _ := transform.Header(rec.Headers, transform.HeaderID)
			r.report.Listed = append(r.report.Listed, ReplayRecord{rec.Partition, rec.Offset, rec.Timestamp.UTC(), shortened(string(id)), shortened(string(rec.Key))})
		}
		return nil
	})
	if errors.Is(err, errListed) {
		return nil
	}
	return err
}

// write publishes the records.
func (r *topicReplay) write(ctx context.Context) error {
	told := r.publishing("records")
	err := r.groups(ctx, func(group []*kgo.Record) error {
		items := make([]delivery.Item, len(group))
		for i, rec := range group {
			ev := r.event(rec)
			items[i] = delivery.Item{Event: ev, Size: ev.Size()}
		}
		told(r.report.Published+r.report.DeadLettered+r.report.Skipped, r.report.ToPublish)
		return r.out.write(ctx, items)
	})
	if err != nil {
		return err
	}
	return r.out.parked.unpublished()
}

// event is that of a record. It asks for a time if the records of the pipeline do.
func (r *topicReplay) event(rec *kgo.Record) *transform.Event {
	id, _ := transform.Header(rec.Headers, transform.HeaderID)
	ev := &transform.Event{Table: "topic " + r.opts.From, ID: id, CommitTime: rec.Timestamp, Record: kgo.Record{
		Topic: r.opts.To, Partition: transform.PartitionByKey, Key: rec.Key, Value: rec.Value, Headers: slices.Clip(rec.Headers),
	}}
	if r.cfg.Event.Partitioned() {
		ev.Record.Partition = rec.Partition
	}
	if _, retimed := transform.Header(rec.Headers, transform.HeaderAsked); timed(r.cfg) && !retimed {
		ev.Asked = rec.Timestamp
	}
	ev.SetMark(transform.HeaderReplay, []byte(r.opts.Name))
	return ev
}

// replayedAgain counts for the report.
type replayedAgain struct {
	uncounted
	report *TopicReplay
}

// Published implements delivery.Metrics.
func (r replayedAgain) Published(events []*transform.Event) {
	r.report.Published += int64(len(events))
}

// DeadLettered implements delivery.Metrics.
func (r replayedAgain) DeadLettered(transform.Reason) { r.report.DeadLettered++ }

// Skipped implements delivery.Metrics.
func (r replayedAgain) Skipped(transform.Reason) { r.report.Skipped++ }

// WriteText prints the report for people.
func (r *TopicReplay) WriteText(w io.Writer) error {
	var b lines
	b.printf("topic %s: %d records chosen, %d of them published by replay %s, %d repetitions of others, %d to publish to topic %s\n",
		r.From, r.Records, r.Before, plain(r.Name), r.Repeated, r.ToPublish, r.To)
	if r.Replays+r.Others > 0 {
		b.printf("left out: %d records of a replay, %d without an event id\n", r.Replays, r.Others)
	}
	for _, rec := range r.Listed {
		b.printf("    %d/%d  %s  %s  key %q\n", rec.Partition, rec.Offset, rec.Time.Format(time.RFC3339), plain(rec.ID), rec.Key)
	}
	if more := r.ToPublish - int64(len(r.Listed)); more > 0 && len(r.Listed) > 0 {
		b.printf("    and %d more\n", more)
	}
	for _, limit := range r.Limits {
		b.printf("not known: %s\n", limit)
	}
	switch {
	case r.publish:
		b.printf("published %d, dead-lettered %d, skipped %d\n", r.Published, r.DeadLettered, r.Skipped)
	case r.ToPublish > 0:
		b.printf("nothing was published; to publish these records, repeat the command with --publish\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
