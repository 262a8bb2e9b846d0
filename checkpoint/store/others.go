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
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkalog"
)

// SecondReader is the verdict about a slot, seen, that no checkpoint knows, if the tables or
// messages of r are read from another slot of this database; or nil. If seen does not exist,
// a slot that nobody reads, and may have events of r, counts, too: they would stay there.
// Slots of siblings do not count.
func SecondReader(ctx context.Context, conn *pgx.Conn, s checkpoint.Store, r catalog.Reading, seen checkpoint.Server, siblings []string) (verdict, err error) {
	strange := func(slots []string) []string {
		return slices.DeleteFunc(slots, func(slot string) bool { return slices.Contains(siblings, slot) })
	}
	slots, err := readAlready(ctx, conn, s, r, seen.Scope)
	if slots = strange(slots); err != nil {
		return nil, err
	}
	switch {
	case len(slots) > 0:
		return checkpoint.SecondReader(seen, slots), nil
	case seen.Exists:
		return nil, nil
	}
	slots, err = r.Unread(ctx, conn)
	if slots = strange(slots); err != nil || len(slots) == 0 {
		return nil, err
	}
	return checkpoint.LeftBehind(seen, slots), nil
}

// readAlready returns the other slots of this database from which the tables or messages of r
// are read: by a running instance, or by one that s has a checkpoint of and whose slot
// exists. scope is what r reads, as checkpoints have it.
func readAlready(ctx context.Context, conn *pgx.Conn, s checkpoint.Store, r catalog.Reading, scope string) ([]string, error) {
	slots, err := r.OtherReaders(ctx, conn)
	if err != nil {
		return nil, err
	}
	existing, err := catalog.OtherSlots(ctx, conn, r.Slot)
	if err != nil {
		return nil, err
	}
	if len(existing) > 0 {
		server, err := catalog.ReadServer(ctx, conn)
		if err != nil {
			return nil, err
		}
		kept, err := others(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("look for checkpoints of other connectors: %w", err)
		}
		for _, cp := range kept {
			if cp.SystemID == server.SystemID && cp.Database == server.Database && slices.Contains(existing, cp.Slot) && cp.Shares(r.Tables, scope) {
				slots = append(slots, cp.Slot)
			}
		}
	}
	slices.Sort(slots)
	return slices.Compact(slots), nil
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
		topics, err := k.admin.ListTopics(ctx)
		if err != nil {
			return nil, err
		}
		for _, topic := range topics.Names() {
			if topic == k.topic || !strings.HasPrefix(topic, k.base+".") || kafkalog.Usable(topics[topic], 0) != nil {
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
