package checker

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Reader reads topics into memory; of a long value it keeps the digest. Run is
// its goroutine; the other methods may be called from any.
type Reader struct {
	client *kgo.Client

	mu      sync.Mutex
	records []Record
	seen    map[string]bool            // ids
	next    map[string]map[int32]int64 // offsets
	epochs  map[int64]int16            // the highest, by producer id
	grown   chan struct{}              // closed and replaced when records arrive
}

// NewReader returns a reader of the topics the client consumes, from their
// beginnings and without a group. The client stays the caller's.
func NewReader(client *kgo.Client) *Reader {
	return &Reader{
		client: client,
		seen:   map[string]bool{},
		next:   map[string]map[int32]int64{},
		epochs: map[int64]int16{},
		grown:  make(chan struct{}),
	}
}

// Run reads until ctx ends. Failures meanwhile are tried again.
func (r *Reader) Run(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := r.client.PollFetches(ctx)
		if fetches.NumRecords() > 0 {
			r.add(fetches)
		}
	}
}

func (r *Reader) add(fetches kgo.Fetches) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fetches.EachRecord(func(kr *kgo.Record) {
		rec := RecordOf(kr)
		if !kr.Attrs.IsControl() { // the marker of a transaction only counts as read
			r.records = append(r.records, rec)
			r.seen[rec.id()] = true
			r.epochs[kr.ProducerID] = max(r.epochs[kr.ProducerID], kr.ProducerEpoch)
		}
		if r.next[rec.Topic] == nil {
			r.next[rec.Topic] = map[int32]int64{}
		}
		r.next[rec.Topic][rec.Partition] = rec.Offset + 1
	})
	close(r.grown)
	r.grown = make(chan struct{})
}

// RecordOf returns the parts of a record for Verify; of a long value, the digest.
func RecordOf(kr *kgo.Record) Record {
	rec := Record{
		Topic: kr.Topic, Partition: kr.Partition, Offset: kr.Offset, Timestamp: kr.Timestamp,
		Key: string(kr.Key), Value: kept(string(kr.Value)),
	}
	for _, h := range kr.Headers {
		rec.Headers = append(rec.Headers, Header{h.Key, string(h.Value)})
	}
	return rec
}

// Records returns everything read so far.
func (r *Reader) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[:len(r.records):len(r.records)]
}

// Find returns all records read of the event.
func (r *Reader) Find(id string) (found []Record) {
	for _, rec := range r.Records() {
		if rec.id() == id {
			found = append(found, rec)
		}
	}
	return found
}

// Producers returns the highest epoch of each producer id among the writers.
func (r *Reader) Producers() map[int64]int16 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.epochs)
}

// AwaitEvents returns once a record of each event was read. The error says how
// many are missing when ctx ends.
func (r *Reader) AwaitEvents(ctx context.Context, ids []string) error {
	missing := ids
	err := r.await(ctx, func() bool {
		missing = r.unseen(missing)
		return len(missing) == 0
	})
	if err != nil {
		return fmt.Errorf("%d of %d events did not arrive: %w", len(missing), len(ids), err)
	}
	return nil
}

// Missing returns the events without any record read.
func (r *Reader) Missing(ids []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unseen(ids)
}

// unseen is called under the lock.
func (r *Reader) unseen(ids []string) (left []string) {
	for _, id := range ids {
		if !r.seen[id] {
			left = append(left, id)
		}
	}
	return left
}

// AwaitEnds returns once every partition was read up to the end.
func (r *Reader) AwaitEnds(ctx context.Context, ends map[string][]int64) error {
	return r.await(ctx, func() bool {
		for topic, partitions := range ends {
			for p, end := range partitions {
				if r.next[topic][int32(p)] < end {
					return false
				}
			}
		}
		return true
	})
}

// await returns once enough, called under the lock, says so.
func (r *Reader) await(ctx context.Context, enough func() bool) error {
	for {
		r.mu.Lock()
		done, grown := enough(), r.grown
		r.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
