package main

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// fingerprint tells whether two topics have the same records, in any order across
// partitions.
type fingerprint struct {
	records, bytes int64
	sum            uint64 // of the records' hashes
	id, value      string // of the record with the least id, to show
}

// add takes a record: partition, key, headers, and the value without its first bytes.
func (f *fingerprint) add(r *kgo.Record, skip int) error {
	id, err := eventID(r)
	if err != nil {
		return err
	}
	if len(r.Value) < skip {
		return fmt.Errorf("event %s has a value of %d bytes", id, len(r.Value))
	}
	compared := r.Value[skip:]
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %q %q", r.Partition, r.Key, compared)
	for _, header := range r.Headers {
		fmt.Fprintf(h, " %q %q", header.Key, header.Value)
	}
	f.records++
	f.bytes += int64(len(compared))
	f.sum += h.Sum64()
	if f.id == "" || id < f.id {
		f.id, f.value = id, string(compared)
	}
	return nil
}

// fingerprintOf reads so many records of a topic.
func fingerprintOf(ctx context.Context, k *rig.Broker, topic string, records int64, skip int) (*fingerprint, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rig.KafkaTimeout, fmt.Errorf("%s has fewer than %d records after %s", topic, records, rig.KafkaTimeout))
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	f := &fingerprint{}
	for f.records < records {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", topic, err)
		}
		for _, r := range fetches.Records() {
			if err := f.add(r, skip); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}
