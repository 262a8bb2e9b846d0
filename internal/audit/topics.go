package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
)

// Skew is how far the clocks of PostgreSQL, the connector and the brokers are
// expected to differ at most.
const Skew = time.Hour

// readers is how many partitions are read at a time; each holds a fetched
// mebibyte, unpacked.
const readers = 2

// mostLimits is how many topics Limits names.
const mostLimits = 20

// ReadOptions say what is read of topics.
type ReadOptions struct {
	// Since skips records with an earlier time, less Skew; zero reads all.
	Since time.Time
	// Timed tells that the time of a record is never before that of its row, by
	// more than Skew.
	Timed bool
	// Patience is how long brokers may fail to answer, one question after the
	// other, until the read fails.
	Patience time.Duration
	// Note takes a line about a wait. It may be called from several goroutines.
	Note func(string)
	// Counts tells whether a record is to be read; nil: all are.
	Counts func(*kgo.Record) bool
	// News tells whether it is news of the record that no row has its id; nil: it is
	// of none.
	News func(*kgo.Record) bool
	// Contents takes the contents of records; nil: nobody asks.
	Contents *Contents
	// Allow is the remedy where brokers do not let the topic be read.
	Allow func(topic string) string
	// Stuck returns how an operator ends the transaction open in the topic; nil: the
	// transaction may end by itself. A nil Stuck waits for each.
	Stuck func(ctx context.Context, topic string) error
}

// Topics reads the ids of records into an Audit.
type Topics struct {
	client *kgo.Client
	audit  *Audit
	opts   ReadOptions

	slots chan struct{} // as many as partitions may be read
	group *errgroup.Group
	ctx   context.Context // of group
	end   context.CancelCauseFunc

	logs  []*topicLog // by index; written by Index only
	index map[string]uint16
	// everywhere are the topics with events of any rows.
	everywhere []*topicLog

	records, ahead, passed atomic.Int64
}

// topicLog is a topic as far as read. Until Finish the reader owns the topicLog.
type topicLog struct {
	name   string
	number uint16
	counts uint16 // for rows of this topic, or Anywhere
	id     [16]byte
	absent bool
	// next is where to go on, by partition.
	next map[int32]int64
	// begins is the time of the oldest record, at the latest, where older ones
	// were deleted; zero: none were.
	begins    time.Time
	compacted bool
	untold    bool // brokers do not say: compacted is assumed
	// keeps is how long records stay at least, where nothing but time deletes them.
	keeps time.Duration
}

// NewTopics returns a reader at the beginning; Beside follows. The client stays the
// caller's. everywhere are topics with events of any rows.
func NewTopics(ctx context.Context, client *kgo.Client, audit *Audit, opts ReadOptions, everywhere ...string) *Topics {
	t := &Topics{client: client, audit: audit, opts: opts, slots: make(chan struct{}, readers), index: make(map[string]uint16)}
	ctx, t.end = context.WithCancelCause(ctx)
	t.group, t.ctx = errgroup.WithContext(ctx)
	for _, name := range everywhere {
		if _, twice := t.index[name]; !twice {
			t.everywhere = append(t.everywhere, t.add(name, Anywhere))
		}
	}
	return t
}

// Index returns the number of a topic; the first call for a topic begins to read
// it. A single goroutine calls Index and Name.
func (t *Topics) Index(name string) (uint16, error) {
	if n, ok := t.index[name]; ok {
		return n, nil
	}
	if len(t.logs) >= Anywhere {
		return 0, failure.Configf("compare a part of the rows, by --since and --until", "the rows go to more than %d topics", len(t.logs))
	}
	n := uint16(len(t.logs))
	t.add(name, n)
	return n, nil
}

// add begins to read a topic.
func (t *Topics) add(name string, counts uint16) *topicLog {
	l := &topicLog{name: name, number: uint16(len(t.logs)), counts: counts, next: make(map[int32]int64)}
	t.index[name] = l.number
	t.logs = append(t.logs, l)
	t.group.Go(func() error { return t.read(t.ctx, l) })
	return l
}

// Name is the topic with the number.
func (t *Topics) Name(n uint16) string { return t.logs[n].name }

// Names are the topics that exist, sorted. Names follows Beside.
func (t *Topics) Names() []string {
	names := make([]string, 0, len(t.logs))
	for _, l := range t.logs {
		if !l.absent {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return names
}

// Progress is the number of records read, and the number of those known that are
// still to be read. It may be called at any time.
func (t *Topics) Progress() (records, ahead int64) { return t.records.Load(), t.ahead.Load() }

// Left is Estimate for the records.
func (t *Topics) Left(since time.Duration) string {
	return Estimate(since, t.passed.Load(), t.ahead.Load())
}

// Beside calls read, which names topics by Index, and returns once each topic is read,
// too, to the end that it had when its read began. The first failure of either side ends
// the other, and is the error.
func (t *Topics) Beside(read func(context.Context) error) error {
	defer t.end(nil)
	err := read(t.ctx)
	ended := t.ctx.Err() != nil // by a topic's failure, the cause of err
	if err != nil {
		t.end(err)
	}
	if failed := t.group.Wait(); failed != nil && (err == nil || ended) {
		return failed
	}
	return err
}

// Finish reads what has come since, up to the ends of the topics now. It follows
// Beside, and may be called again.
func (t *Topics) Finish(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range t.logs {
		group.Go(func() error { return t.read(ctx, l) })
	}
	return group.Wait()
}

// Known tells whether the record of a row would have been read if there were one.
func (t *Topics) Known(e *Entry) bool {
	if !t.known(t.logs[e.Topic], e) {
		return false
	}
	return !slices.ContainsFunc(t.everywhere, func(l *topicLog) bool { return !t.known(l, e) })
}

func (t *Topics) known(l *topicLog, e *Entry) bool {
	switch {
	case l.compacted:
		return false
	case e.At == NoTime && !t.opts.Since.IsZero():
		return false
	case l.begins.IsZero():
		return true
	case !t.opts.Timed || e.At == NoTime:
		return false
	}
	return !time.UnixMicro(e.At).Before(l.begins.Add(Skew))
}

// Compacted is the name of a topic that loses records of a key to later ones; ""
// for none. told is false where brokers do not say. Compacted follows Beside.
func (t *Topics) Compacted() (name string, told bool) {
	for _, l := range t.logs {
		if l.compacted && (name == "" || !l.untold) {
			name, told = l.name, !l.untold
		}
	}
	return name, told
}

// Limits say of which topics not all is known, one line for a topic.
func (t *Topics) Limits() (lines []string) {
	for _, l := range t.logs {
		switch {
		case l.absent:
			lines = append(lines, fmt.Sprintf("topic %q does not exist", l.name))
		case l.untold:
			lines = append(lines, fmt.Sprintf("brokers do not tell whether topic %q is compacted, so that an event without a record may have been there; %s", l.name, t.opts.Allow(l.name)))
		case l.compacted:
			lines = append(lines, fmt.Sprintf("topic %q is compacted: an event without a record may have been there", l.name))
		case !l.begins.IsZero() && l.begins.After(t.opts.Since.Add(-Skew)):
			lines = append(lines, fmt.Sprintf("topic %q begins at %s: records before were deleted, so of rows up to %s later nothing is known",
				l.name, l.begins.UTC().Format(time.RFC3339), Skew))
		}
	}
	slices.Sort(lines)
	if more := len(lines) - mostLimits; more > 0 {
		lines = append(lines[:mostLimits], fmt.Sprintf("and so on, for %d topics more", more))
	}
	return lines
}

// read reads the topic to its present end.
func (t *Topics) read(ctx context.Context, l *topicLog) error {
	var logs []*kafkalog.Partition
	leave, err := t.enter(ctx)
	if err != nil {
		return err
	}
	err = t.opts.persist(ctx, l.name, func() (err error) {
		logs, err = t.open(ctx, l)
		return err
	})
	leave()
	if err != nil || len(logs) == 0 {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex // guards l.next
	next := maps.Clone(l.next)
	for _, log := range logs {
		number := log.Number()
		from := next[number]
		_, end := log.Bounds()
		t.ahead.Add(max(0, end-from))
		group.Go(func() error {
			read, err := t.readPartition(ctx, l, log, from, end)
			mu.Lock()
			defer mu.Unlock()
			l.next[number] = read
			return err
		})
	}
	return group.Wait()
}

// open finds the partitions, and, of those seen for the first time, where to
// begin. It returns none for a topic that does not exist.
func (t *Topics) open(ctx context.Context, l *topicLog) ([]*kafkalog.Partition, error) {
	id, logs, err := kafkalog.OpenTopic(ctx, t.client, l.name)
	switch {
	case err != nil:
		return nil, err
	case len(logs) == 0 && len(l.next) == 0:
		l.absent = true
		return nil, nil
	case len(logs) == 0:
		return nil, kerr.UnknownTopicOrPartition
	case len(l.next) > 0 && id != l.id:
		return nil, &failure.Error{Class: failure.Transient, Remedy: "repeat the command", Err: fmt.Errorf("topic %q was deleted and made again meanwhile", l.name)}
	}
	l.absent, l.id = false, id
	if err := t.policy(ctx, l); err != nil {
		return nil, err
	}
	return logs, t.begin(ctx, l, logs)
}

// policy finds the rules for the deletion of records. Where brokers do not say,
// the topic counts as compacted.
func (t *Topics) policy(ctx context.Context, l *topicLog) error {
	settings, err := broker.TopicSettings(ctx, t.client, l.name, "cleanup.policy", "retention.ms", "retention.bytes")
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		t.opts.Note(fmt.Sprintf("brokers do not tell the settings of topic %q: it counts as compacted", l.name))
		l.compacted, l.untold = true, true
		return nil
	case err != nil:
		return err
	}
	l.untold = false
	l.compacted = strings.Contains(settings["cleanup.policy"], "compact")
	if keeps, err := settings.Number("retention.ms"); err == nil && keeps > 0 && settings["retention.bytes"] == "-1" {
		l.keeps = time.Duration(min(keeps, math.MaxInt64/int(time.Millisecond))) * time.Millisecond
	}
	return nil
}

// begin finds the beginning of the read in new partitions.
func (t *Topics) begin(ctx context.Context, l *topicLog, logs []*kafkalog.Partition) error {
	fresh := slices.DeleteFunc(slices.Clone(logs), func(p *kafkalog.Partition) bool {
		_, seen := l.next[p.Number()]
		return seen
	})
	if len(fresh) == 0 {
		return nil
	}
	starts := make(map[int32]int64)
	for _, p := range fresh {
		starts[p.Number()], _ = p.Bounds()
	}
	if t.opts.Timed && !t.opts.Since.IsZero() {
		var err error
		if starts, err = kafkalog.Since(ctx, fresh, t.opts.Since.Add(-Skew)); err != nil {
			return err
		}
	}
	for _, p := range fresh {
		begins, err := Oldest(ctx, p, l.keeps)
		if err != nil {
			return err
		}
		if begins.After(l.begins) {
			l.begins = begins
		}
	}
	for number, start := range starts {
		l.next[number] = start
	}
	return nil
}

// readPartition reads up to end, through changes of the leader, and returns the
// offset to go on from.
func (t *Topics) readPartition(ctx context.Context, l *topicLog, log *kafkalog.Partition, from, end int64) (int64, error) {
	leave, err := t.enter(ctx)
	if err != nil {
		return from, err
	}
	defer leave()
	reader := NewReader(t.client, log, l.name, t.opts)
	return reader.Walk(ctx, from, end, func(records []*kgo.Record, next int64) error {
		if err := t.take(l, records); err != nil {
			return err
		}
		t.ahead.Add(from - next)
		t.passed.Add(next - from)
		from = next
		return nil
	})
}

// enter waits for a turn at the brokers.
func (t *Topics) enter(ctx context.Context) (leave func(), err error) {
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// take adds records.
func (t *Topics) take(l *topicLog, records []*kgo.Record) error {
	for _, r := range records {
		if id, ok := idOf(r); ok && (t.opts.Counts == nil || t.opts.Counts(r)) {
			at := NoSpot
			if t.opts.News != nil && t.opts.News(r) {
				at = Spot{l.number, r.Partition, r.Offset}
			}
			if err := t.audit.Record(id, l.counts, at); err != nil {
				return err
			}
			if err := t.opts.Contents.record(r, id, l.counts, l.number); err != nil {
				return err
			}
			t.records.Add(1)
		}
	}
	return nil
}
