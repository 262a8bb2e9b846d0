package kafkalog

import (
	"context"
	"maps"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Ends returns the topic's id and the ends of the partitions, as far as their
// leaders tell now: the high watermarks, behind every acknowledged record.
func Ends(ctx context.Context, client *kgo.Client, topic string) (id [16]byte, ends map[int32]int64, err error) {
	known, err := newest(ctx, client, topic)
	if err == nil {
		err = known.Err
	}
	if err != nil {
		return id, nil, err
	}
	led := make(map[int32][]*Partition)
	for number, p := range known.Leaders {
		if known.Usable(number) == nil {
			led[p.Node] = append(led[p.Node], &Partition{client: client, topic: topic, number: number, leader: p})
		}
	}
	ends = make(map[int32]int64)
	for _, logs := range led {
		if refused := endsOf(ctx, logs, ends); refused != nil {
			err = refused
		}
	}
	if len(ends) > 0 {
		err = nil
	}
	return known.ID, ends, err
}

// endsOf adds the ends of partitions with the same leader. A leader that cannot
// tell all of them yet is asked for each.
func endsOf(ctx context.Context, logs []*Partition, ends map[int32]int64) error {
	listed, err := offsets(ctx, logs, atEnd)
	maps.Copy(ends, listed)
	if err == nil || len(logs) == 1 {
		return err
	}
	for i := range logs {
		if refused := endsOf(ctx, logs[i:i+1], ends); refused != nil {
			err = refused
		}
	}
	return err
}
