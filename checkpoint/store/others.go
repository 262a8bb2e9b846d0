package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// SecondReader is the verdict about a slot, seen, that no checkpoint knows, if the tables or
// messages of r are read from another slot of this database; or nil. If seen does not exist,
// a slot that nobody reads, and may have events of r, counts, too: they would stay there.
// Slots of siblings do not count.
func SecondReader(ctx context.Context, conn *pgx.Conn, s checkpoint.Store, r catalog.Reading, seen checkpoint.Server, siblings []string) (verdict, err error) {
	same, err := r.OtherReaders(ctx, conn)
	if err != nil {
		return nil, err
	}
	noted, err := notedSlots(ctx, conn, s, r.Slot)
	if err != nil {
		return nil, err
	}
	foreign := slices.Clone(siblings)
	for _, cp := range noted {
		if cp.Shares(r.Tables, seen.Scope) {
			same = append(same, cp.Slot)
		} else if cp.Scope != "" {
			foreign = append(foreign, cp.Slot)
		}
	}
	if same = without(same, siblings); len(same) > 0 {
		return checkpoint.SecondReader(seen, same), nil
	}
	if seen.Exists {
		return nil, nil
	}
	unread, err := r.Unread(ctx, conn)
	if unread = without(unread, foreign); err != nil || len(unread) == 0 {
		return nil, err
	}
	return checkpoint.LeftBehind(seen, unread), nil
}

// without returns the slots sorted, each once, and none of the others.
func without(slots, others []string) []string {
	slices.Sort(slots)
	return slices.DeleteFunc(slices.Compact(slots), func(slot string) bool { return slices.Contains(others, slot) })
}

// notedSlots returns the checkpoints of s whose slot is another one of this database than slot.
func notedSlots(ctx context.Context, conn *pgx.Conn, s checkpoint.Store, slot string) ([]checkpoint.Checkpoint, error) {
	existing, err := catalog.OtherSlots(ctx, conn, slot)
	if err != nil || len(existing) == 0 {
		return nil, err
	}
	server, err := catalog.ReadServer(ctx, conn)
	if err != nil {
		return nil, err
	}
	kept, err := others(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("look for checkpoints of other connectors: %w", err)
	}
	return slices.DeleteFunc(kept, func(cp checkpoint.Checkpoint) bool {
		return cp.SystemID != server.SystemID || cp.Database != server.Database || !slices.Contains(existing, cp.Slot)
	}), nil
}

// others returns the checkpoints under other keys, as far as they can be read. A store that
// keeps one only has none.
func others(ctx context.Context, s checkpoint.Store) ([]checkpoint.Checkpoint, error) {
	if o, ok := s.(interface {
		others(ctx context.Context) ([]checkpoint.Checkpoint, error)
	}); ok {
		return o.others(ctx)
	}
	return nil, nil
}

func (p *postgres) others(ctx context.Context) (all []checkpoint.Checkpoint, err error) {
	err = p.do(ctx, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, `SELECT checkpoint FROM `+p.table+` WHERE key <> $1`, p.key)
		values, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		all = nil
		for _, value := range values {
			if cp, err := decode(value, ""); err == nil {
				all = append(all, cp)
			}
		}
		return err
	})
	return all, err
}

// others looks at the end of the topic of each other key. A checkpoint that a transaction
// may abort counts, too: its slot is the same.
func (k *kafka) others(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	return await.Answer(ctx, func() (all []checkpoint.Checkpoint, err error) {
		known, err := broker.AllTopics(ctx, k.client)
		if err != nil {
			return nil, err
		}
		for i := range known.Topics {
			topic := *known.Topics[i].Topic
			if topic == k.topic || !strings.HasPrefix(topic, k.base+".") || kafkalog.TopicOf(&known.Topics[i]).Usable(0) != nil {
				continue
			}
			records, err := k.lastIn(ctx, topic)
			if err != nil && !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.UnknownTopicOrPartition) {
				return nil, fmt.Errorf("topic %s: %w", topic, err)
			}
			for _, r := range records {
				if cp, err := decode(r.Value, ""); err == nil { // a record without a value is none
					all = append(all, cp)
				}
			}
		}
		return all, nil
	})
}

// lastIn returns the last record of another key's topic, if there is one.
func (k *kafka) lastIn(ctx context.Context, topic string) ([]*kgo.Record, error) {
	logs, err := kafkalog.Open(ctx, k.client, topic, 0)
	if err != nil {
		return nil, err
	}
	records, err := kafkalog.Newest(ctx, logs[0].Raw(), func(r *kgo.Record) bool { return !r.Attrs.IsControl() && !alien(r) })
	return records[max(0, len(records)-1):], err
}
