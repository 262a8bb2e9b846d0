package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// Repeated are the events behind a slot's position. A reader publishes events before it
// confirms their position, so some are in Kafka already.
type Repeated struct {
	Events  int64 `json:"events"` // committed behind the position
	InKafka int64 `json:"in_kafka"`
	// Whole tells that all events until the start of the command are counted.
	Whole bool `json:"whole"`
	// Ahead are the events of the first transactions, of which all events are in Kafka; End
	// is the end of the last of them.
	Ahead int64  `json:"ahead"`
	End   string `json:"end,omitempty"`

	end      pg.LSN
	landmark checkpoint.Landmark // the last of the first transactions
}

const (
	// adoptPatience bounds the read of the log behind a slot's position, and of the topics.
	adoptPatience = time.Minute
	// mostRepeated bounds the memory for their events.
	mostRepeated = 1_000_000
)

// eventsBehind are the events behind a position.
type eventsBehind struct {
	events []eventBehind
	ends   map[pg.LSN]pg.LSN    // of the transactions, by their commits
	topics map[string]time.Time // of the first event's commit
	found  map[audit.Key]bool
}

type eventBehind struct {
	key audit.Key
	at  checkpoint.Landmark
	bad bool // no record is to be expected
}

var errMany = errors.New("more events than are counted")

// print takes an event.
func (b *eventsBehind) print(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	if len(b.events) >= mostRepeated {
		return errMany
	}
	id, _ := transform.Header(ev.Record.Headers, transform.HeaderID)
	if id == nil {
		id = ev.ID
	}
	key := audit.KeyOf(id)
	b.events = append(b.events, eventBehind{key, checkpoint.Landmark{Commit: ev.Position.CommitLSN, XID: ev.XID, Time: ev.CommitTime}, bad != nil})
	if bad != nil {
		return nil
	}
	b.found[key] = false
	if _, known := b.topics[ev.Record.Topic]; !known {
		b.topics[ev.Record.Topic] = ev.CommitTime
	}
	return nil
}

// repeated reads the log behind the slot's position, and looks for the events in Kafka. The
// slot, which nobody may read meanwhile, stays where it is.
func (d *decision) repeated(ctx context.Context, note func(string)) (*Repeated, error) {
	b := &eventsBehind{ends: make(map[pg.LSN]pg.LSN), topics: make(map[string]time.Time), found: make(map[audit.Key]bool)}
	whole, err := d.readBehind(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("read what is committed behind the slot's position: %w", err)
	}
	if err := d.lookUp(ctx, b, note); err != nil {
		return nil, err
	}
	return b.count(whole), nil
}

// readBehind reads up to the present end of the log; whole is false if that takes too long.
func (d *decision) readBehind(ctx context.Context, b *eventsBehind) (whole bool, err error) {
	end, err := catalog.ReadFlushed(ctx, d.conn)
	if err != nil {
		return false, err
	}
	repl, err := d.replication(ctx)
	if err != nil {
		return false, err
	}
	at := d.Slot.ConfirmedFlush
	stream, err := d.stream(ctx, repl, d.Slot.Name, at, at) // which is never confirmed further
	if err != nil {
		return false, err
	}
	defer catalog.Close(stream)
	limited, cancel := context.WithTimeout(ctx, adoptPatience)
	defer cancel()
	t := &tail{session: d.session, out: b, moves: d.moves(), apart: catalog.PartitionedOIDs(d.Tables)}
	for {
		msg, err := stream.Next(limited)
		if err == nil {
			err = t.take(limited, msg)
		}
		switch {
		case errors.Is(err, errMany), err != nil && limited.Err() != nil && ctx.Err() == nil:
			return false, nil
		case err != nil:
			return false, err
		}
		if msg.Kind == wal.Commit {
			b.ends[msg.Row.Position.CommitLSN] = msg.End
		}
		if (msg.Kind == wal.Commit || msg.Kind == wal.Keepalive) && msg.End >= end {
			return true, nil
		}
	}
}

// lookUp reads the topics from the first commit on, or from their beginning where a column
// gives the time of records.
func (d *decision) lookUp(ctx context.Context, b *eventsBehind, note func(string)) error {
	if len(b.topics) == 0 {
		return nil
	}
	c := newCluster(d.cfg)
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer c.client.Close()
	opts := audit.ReadOptions{Patience: adoptPatience, Note: note, Allow: func(topic string) string { return c.cfg.Tools().Allow("Read", topic) }}
	for topic, first := range b.topics {
		logs, err := audit.Open(ctx, c.client, topic, opts)
		if err != nil {
			return err
		}
		starts := make(map[int32]int64)
		if d.cfg.Event.Timestamp == "" {
			if starts, err = audit.Since(ctx, logs, topic, first.Add(-audit.Skew), opts); err != nil {
				return err
			}
		}
		for _, log := range logs {
			start, end := log.Bounds()
			if from, known := starts[log.Number()]; known {
				start = max(start, from)
			}
			_, err := audit.NewReader(c.client, log, topic, opts).Walk(ctx, start, end, func(records []*kgo.Record, _ int64) error {
				for _, r := range records {
					b.see(r)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// see marks the event of a record.
func (b *eventsBehind) see(r *kgo.Record) {
	id, _ := transform.Header(r.Headers, transform.HeaderID)
	if id == nil {
		return
	}
	if _, wanted := b.found[audit.KeyOf(id)]; wanted {
		b.found[audit.KeyOf(id)] = true
	}
}

// count sums up. A transaction counts as ahead only as a whole.
func (b *eventsBehind) count(whole bool) *Repeated {
	r := &Repeated{Events: int64(len(b.events)), Whole: whole}
	ahead, inTransaction := true, int64(0)
	for i, ev := range b.events {
		if !ev.bad && b.found[ev.key] {
			r.InKafka++
		}
		ahead = ahead && !ev.bad && b.found[ev.key]
		inTransaction++
		last := i == len(b.events)-1 || b.events[i+1].at.Commit != ev.at.Commit
		end, ended := b.ends[ev.at.Commit]
		if last && ahead && ended {
			r.Ahead, r.end, r.landmark, inTransaction = r.Ahead+inTransaction, end, ev.at, 0
			r.End = end.String()
		}
	}
	return r
}
