package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// ErrGone is wrapped by the error of a load of a checkpoint that has disappeared
// from the store. It is a loss.
var ErrGone = errors.New("it was deleted or emptied")

// look has a log's records under the key, from the newest counting checkpoint on.
type look struct {
	records []*kgo.Record // they count, in order
	aborted []aborted     // they do not
	alien   *kgo.Record   // a record under the key that is no checkpoint; nil: none was seen
}

// aborted is a checkpoint whose transaction was aborted.
type aborted struct {
	record *kgo.Record
	epoch  int16 // of the marker
	// torn: the transaction had been committed before, here. Consumers see the checkpoint,
	// but it does not count, as other partitions may have the abort alone.
	torn bool
}

// search finds the wanted records of a log: kafkalog.Newest, or All.
type search = func(context.Context, kafkalog.Log, func(*kgo.Record) bool) ([]*kgo.Record, error)

// fenced reports whether the last record was written in a transaction. A
// connector that has lost the slot can write no record behind it.
func (l *look) fenced() bool {
	n := len(l.records)
	return n > 0 && l.records[n-1].Attrs.IsTransactional()
}

// lookAt searches a log for a counting checkpoint under the key. raw is the same log with
// aborted records and markers.
func lookAt(ctx context.Context, key string, search search, log, raw kafkalog.Log) (l look, err error) {
	torn := func(r *kgo.Record) bool {
		return slices.ContainsFunc(l.aborted, func(a aborted) bool { return a.torn && a.record.Offset == r.Offset })
	}
	mine := func(r *kgo.Record) bool {
		if string(r.Key) != key {
			return false
		}
		if alien(r) {
			l.alien = r
			return false
		}
		return true
	}
	ours := func(r *kgo.Record) bool { return mine(r) && !torn(r) }
	for {
		if l.records, err = search(ctx, log, ours); err != nil {
			return l, err
		}
		if !slices.ContainsFunc(l.records, func(r *kgo.Record) bool { return r.Attrs.IsTransactional() }) {
			return l, nil
		}
		_, end := log.Bounds()
		all, err := kafkalog.Scan(ctx, raw, l.records[0].Offset, end, func(r *kgo.Record) bool {
			return r.Attrs.IsControl() || r.Attrs.IsTransactional() && mine(r)
		})
		if err != nil {
			return l, err
		}
		l.aborted = abortedIn(all)
		if l.records = slices.DeleteFunc(l.records, torn); len(l.records) > 0 {
			return l, nil
		}
	}
}

// alien reports that a record is no store's: all headers of a store's records begin with
// cdc-. Each event has another header, the id, whatever the payload and the connector.
func alien(r *kgo.Record) bool {
	return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return !strings.HasPrefix(h.Key, "cdc-") })
}

// abortedIn returns the aborted checkpoints in a part of a log with markers.
func abortedIn(log []*kgo.Record) (all []aborted) {
	type producer struct{ open, committed []*kgo.Record }
	producers := make(map[int64]producer)
	for _, r := range log {
		p := producers[r.ProducerID]
		switch {
		case !r.Attrs.IsControl():
			p = producer{open: append(p.open, r)}
		case kafkalog.Commits(r):
			p = producer{committed: p.open}
		default:
			for _, open := range p.open {
				all = append(all, aborted{open, r.ProducerEpoch, false})
			}
			// The abort may be of a later transaction without records here. But if each
			// transaction has an epoch of its own (transaction.version 2), such an abort has
			// yet another epoch.
			for _, committed := range p.committed {
				if r.ProducerEpoch == committed.ProducerEpoch+1 && !empty(committed) {
					all = append(all, aborted{committed, r.ProducerEpoch, true})
				}
			}
			p = producer{}
		}
		producers[r.ProducerID] = p
	}
	return all
}

// header is the value of a record's header; nil: no such header.
func header(r *kgo.Record, key string) []byte {
	for _, h := range r.Headers {
		if h.Key == key {
			return h.Value
		}
	}
	return nil
}

// written are the other records of the checkpoint's transaction; nil: unknown.
func written(r *kgo.Record) checkpoint.Written {
	w, err := checkpoint.ParseWritten(header(r, checkpoint.WrittenHeader))
	if err != nil {
		return nil
	}
	return w
}

// endsOf are the ends with the checkpoint's transaction; nil: unknown.
func endsOf(r *kgo.Record) checkpoint.Ends {
	ends, err := checkpoint.ParseEnds(header(r, checkpoint.EndsHeader))
	if err != nil {
		return nil
	}
	return ends
}

// empty reports whether the transaction certainly has nothing but the checkpoint.
func empty(r *kgo.Record) bool {
	w := written(r)
	return w != nil && len(w) == 0
}

// found returns the counting checkpoint, with the doubtful transactions behind it.
func (l look) found() (found, error) {
	f, err := pick(l.records)
	if err != nil {
		return f, err
	}
	if r := l.alien; r != nil && f.nothing { // it may have replaced a checkpoint
		return f, unreadable(fmt.Sprintf("the record at offset %d of topic %s under key %q", r.Offset, r.Topic, r.Key), errors.New("it has headers that no checkpoint has, as an event does"))
	}
	for _, a := range l.aborted {
		r, w := a.record, written(a.record)
		if r.Offset < f.offset || !a.torn && len(w) == 0 {
			continue
		}
		if !f.ok {
			if !a.torn {
				continue
			}
			return f, failure.Lossf("compare what consumers have with the outbox; then "+catalog.AcceptGap,
				"the last checkpoint of topic %s, at offset %d, is of a transaction that brokers committed in a part of the partitions only, and the one before is not there: %w", r.Topic, r.Offset, ErrGone)
		}
		cp, err := decode(r.Value, fmt.Sprintf("the record at offset %d of topic %s under key %q", r.Offset, r.Topic, r.Key))
		if err != nil {
			return f, err
		}
		if r.Timestamp.After(cp.SavedAt) { // a failed transaction is written again, perhaps much later
			cp.SavedAt = r.Timestamp.UTC()
		}
		f.Doubtful = append(slices.Clip(f.Doubtful), checkpoint.Doubtful{
			Saved: cp, Producer: r.ProducerID, Epoch: r.ProducerEpoch, Aborted: a.epoch, Committed: a.torn, Written: w,
		})
	}
	return f, nil
}
