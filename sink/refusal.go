package sink

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// judge decides about the refused parts of an aborted transaction; marks is the
// topic of its mark, "" without one.
func (x *Transactions) judge(ctx context.Context, failed []batch, marks string) (again bool, refused []Refusal, err error) {
	slow := false
	for _, b := range failed {
		switch verdict := judge(b.err); {
		case verdict == topicGone && b.topic() != marks:
			x.k.forget(b.topic(), b.err)
			again = true
		case verdict == untimely && b.topic() != marks:
			again = true
			if !x.k.untimely(ctx, &b) {
				slow = true
			}
		case verdict == misconfigured, verdict == closed:
			return false, nil, x.k.fatal(&b)
		case verdict != badRecord || b.topic() == marks:
			return false, nil, unsettled(fmt.Errorf("write to topic %q: %w", b.topic(), b.err))
		case len(b.events) > 1 && badEvent(b.err).Reason == transform.ReasonRecordTooLarge:
			x.limit = min(x.limit, b.bytes()) / 2
			again = true
		default:
			bad, err := x.isolate(ctx, b)
			if err != nil {
				return false, nil, err
			}
			refused = append(refused, bad...)
			again = again || len(bad) == 0 // not refused again
		}
	}
	if len(refused) > 0 {
		return false, refused, nil
	}
	x.k.complain("Kafka did not take a transaction, writing it again", zap.Error(failed[0].err))
	if slow {
		return again, nil, x.refusals.Pause(ctx)
	}
	return again, nil, nil
}

// isolate finds the refused events of a batch: those named by brokers, or else by
// writing halves in transactions that are aborted.
func (x *Transactions) isolate(ctx context.Context, b batch) (found []Refusal, err error) {
	named := b.said.named(len(b.events))
	if len(b.events) == 1 && b.proven() {
		named = []int{0}
	}
	for _, i := range named {
		p, cause := b.events[i], b.cause(i)
		switch {
		case p.letter && x.k.cutLetters(p.Event, cause):
			return nil, nil
		case p.letter:
			return nil, x.k.refusedLetter(cause)
		}
		found = append(found, Refusal{p.entry, x.k.badEvent(b.topic(), cause)})
	}
	if len(named) > 0 {
		return found, nil
	}
	middle := (len(b.events) + 1) / 2
	for _, half := range [][]placed{b.events[:middle], b.events[middle:]} {
		if len(half) == 0 {
			continue
		}
		failed, err := x.write(ctx, [][]placed{half})
		if err == nil {
			err = x.abort(ctx)
		}
		if err != nil {
			return nil, err
		}
		for _, f := range failed { // at most one: all are in a single partition
			if judge(f.err) != badRecord {
				return nil, unsettled(fmt.Errorf("write to topic %q: %w", f.topic(), f.err))
			}
			bad, err := x.isolate(ctx, f)
			if err != nil {
				return nil, err
			}
			found = append(found, bad...)
		}
	}
	return found, nil
}

// bytes is the size of the batch's records, before compression.
func (s *batch) bytes() (n int) {
	for _, p := range s.events {
		n += recordSize(p.Event, p.Size())
	}
	return n
}
