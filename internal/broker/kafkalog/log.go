// Package kafkalog reads partitions of Kafka in their state at the opening,
// from the latest leader known to any broker. Committed records are read only
// while no transaction is open before the end; Raw shows all, markers included.
package kafkalog

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Log is a partition in the state at the opening.
type Log interface {
	// Bounds are the first offset and the offset behind the last.
	Bounds() (start, end int64)
	// Read returns records at or after offset from, and the offset to go on
	// from: it passes over compacted records, transaction markers and aborted
	// records. next == from means that nothing follows.
	Read(ctx context.Context, from int64) (records []*kgo.Record, next int64, err error)
}

// ReadTo is Read for the records before end: the offset to go on from is end where no
// further record is before it.
func ReadTo(ctx context.Context, l Log, from, end int64) (records []*kgo.Record, next int64, err error) {
	if records, next, err = l.Read(ctx, from); err != nil {
		return nil, from, err
	}
	if next == from {
		next = end
	}
	for len(records) > 0 && records[len(records)-1].Offset >= end {
		records = records[:len(records)-1]
	}
	return records, min(next, end), nil
}

// firstWindow is how many offsets at the end of the log are read first. If the
// wanted records are not among them, windowGrowth times as many are read, and
// so on. The checkpoint of a busy connector is in the first window. That of an
// idle one beside it is found in a few more reads.
const (
	firstWindow  = 128
	windowGrowth = 8
)

// Newest returns, in order, the wanted records in the last window of the log
// that has any: at least the last, and the records around, perhaps written by a
// connector after the loss of the slot.
func Newest(ctx context.Context, l Log, wanted func(*kgo.Record) bool) ([]*kgo.Record, error) {
	start, end := l.Bounds()
	for window, hi := int64(firstWindow), end; hi > start; window *= windowGrowth {
		lo := max(start, end-window)
		found, err := Scan(ctx, l, lo, hi, wanted)
		if err != nil || len(found) > 0 {
			return found, err
		}
		hi = lo
	}
	return nil, nil
}

// All returns all wanted records of the log, in order.
func All(ctx context.Context, l Log, wanted func(*kgo.Record) bool) ([]*kgo.Record, error) {
	start, end := l.Bounds()
	return Scan(ctx, l, start, end, wanted)
}

// Scan returns the wanted records in [lo, hi).
func Scan(ctx context.Context, l Log, lo, hi int64, wanted func(*kgo.Record) bool) (found []*kgo.Record, err error) {
	err = Walk(ctx, l, lo, hi, func(r *kgo.Record) (more bool) {
		if wanted(r) {
			found = append(found, r)
		}
		return true
	})
	return found, err
}

// Walk calls visit with the records in [lo, hi), in order, until visit wants no
// more.
func Walk(ctx context.Context, l Log, lo, hi int64, visit func(*kgo.Record) (more bool)) error {
	for lo < hi {
		records, next, err := l.Read(ctx, lo)
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.Offset >= hi || !visit(r) {
				return nil
			}
		}
		if next == lo {
			return nil
		}
		lo = next
	}
	return nil
}
