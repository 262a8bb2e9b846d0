package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// verify reads a topic's first records and compares them with their rows: a fast
// subject must have written the right records.
func (s *stage) verify(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, rig.KafkaTimeout, fmt.Errorf("no records to compare after %s", rig.KafkaTimeout))
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka.Addr), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	fetches := client.PollRecords(ctx, 10)
	if err := fetches.Err(); err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	for _, record := range fetches.Records() {
		if err := s.compare(ctx, record); err != nil {
			return fmt.Errorf("record %s[%d]@%d: %w", topic, record.Partition, record.Offset, err)
		}
	}
	return nil
}

// compare looks for the record's row.
func (s *stage) compare(ctx context.Context, record *kgo.Record) error {
	id, err := eventID(record)
	if err != nil {
		return err
	}
	var key, value string
	err = s.db.Conn.QueryRow(ctx, `SELECT aggregateid, payload::text FROM outbox WHERE id = $1`, id).Scan(&key, &value)
	if err != nil {
		return fmt.Errorf("row %s: %w", id, err)
	}
	if string(record.Key) != key || string(record.Value) != value {
		return fmt.Errorf("row %s is %q: %q, the record %q: %q", id, key, value, record.Key, record.Value)
	}
	return nil
}

// eventID is the header written by both.
func eventID(record *kgo.Record) (string, error) {
	for _, h := range record.Headers {
		if h.Key == "id" {
			return string(h.Value), nil
		}
	}
	return "", fmt.Errorf("it has no header id among %v", record.Headers)
}
