package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// Unnoted judges a slot without a checkpoint, existing or to be made: may it be read?
type Unnoted struct {
	Seen     checkpoint.Server
	Reading  catalog.Reading
	Siblings []string         // slots that do not count
	Store    checkpoint.Store // nil: not made yet
	Saves    bool             // there is a store, now or later
	Begun    bool             // by the store's word, nobody has read the slot yet
}

// Vanished warns of a slot read before, so that a checkpoint was lost; nil: it was not read,
// as far as the server knows.
func (u *Unnoted) Vanished(ctx context.Context, conn *pgx.Conn) (warning, err error) {
	if !u.Saves || u.Begun || !u.Seen.Exists {
		return nil, nil
	}
	read, err := catalog.WasRead(ctx, conn, u.Seen.Name)
	if err != nil || !read {
		return nil, err
	}
	return checkpoint.Vanished(u.Seen.Slot), nil
}

// Refused is the verdict on the slot if another slot of the database is read for the same
// tables or messages: each event would be published twice. For a slot to be made, a slot
// without a reader counts, too, if it may have the same events: they would stay there. Nil:
// the slot may be read, or no checkpoint would note the reading, or the present reader has
// the verdict.
func (u *Unnoted) Refused(ctx context.Context, conn *pgx.Conn) (verdict, err error) {
	seen, r := u.Seen, u.Reading
	if u.Begun || seen.Exists && (!u.Saves || seen.Slot.Active) {
		return nil, nil
	}
	same, err := r.OtherReaders(ctx, conn)
	if err != nil {
		return nil, err
	}
	noted, err := u.notedSlots(ctx, conn)
	if err != nil {
		return nil, err
	}
	foreign := slices.Clone(u.Siblings)
	for i := range noted {
		cp := &noted[i]
		if cp.Shares(r.Tables, seen.Scope) {
			same = append(same, cp.Slot)
		} else if cp.Scope != "" {
			foreign = append(foreign, cp.Slot)
		}
	}
	if same = without(same, u.Siblings); len(same) > 0 {
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

// notedSlots returns the checkpoints of the store for other slots of the database, without the
// siblings.
func (u *Unnoted) notedSlots(ctx context.Context, conn *pgx.Conn) ([]other, error) {
	existing, err := catalog.OtherSlots(ctx, conn, u.Reading.Slot)
	if existing = without(existing, u.Siblings); err != nil || len(existing) == 0 {
		return nil, err
	}
	kept, err := u.others(ctx, conn)
	return slices.DeleteFunc(kept, func(cp other) bool { return !slices.Contains(existing, cp.Slot) }), err
}

// other is a checkpoint under another key.
type other struct {
	key string
	checkpoint.Checkpoint
}

// others returns the readable checkpoints of the store under other keys, of the connection's
// database. Of the siblings there may be some.
func (u *Unnoted) others(ctx context.Context, conn *pgx.Conn) ([]other, error) {
	o, ok := u.Store.(interface {
		// others may leave out checkpoints for the slots.
		others(ctx context.Context, slots []string) ([]other, error)
	})
	if !ok {
		return nil, nil
	}
	server, err := catalog.ReadServer(ctx, conn)
	if err != nil {
		return nil, err
	}
	kept, err := o.others(ctx, u.Siblings)
	if err != nil {
		return nil, fmt.Errorf("look for checkpoints of other connectors: %w", err)
	}
	return slices.DeleteFunc(kept, func(cp other) bool {
		return cp.SystemID != server.SystemID || cp.Database != server.Database
	}), nil
}

func (p *postgres) others(ctx context.Context, _ []string) (all []other, err error) {
	err = p.do(ctx, func(conn *pgx.Conn) error {
		all = nil
		rows, _ := conn.Query(ctx, `SELECT key, checkpoint FROM `+p.table+` WHERE key <> $1`, p.key)
		var key string
		var value []byte
		_, err := pgx.ForEachRow(rows, []any{&key, &value}, func() error {
			if cp, err := decode(value, ""); err == nil {
				all = append(all, other{key, cp})
			}
			return nil
		})
		return err
	})
	return all, err
}

// others looks at the other files of the directory. Connectors with a file each have them
// beside each other, as a rule.
func (f *file) others(context.Context, []string) (all []other, err error) {
	dir := filepath.Dir(f.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > largestFile {
			continue
		}
		doc, err := readDocument(filepath.Join(dir, e.Name()))
		if err != nil || doc.Key == f.key {
			continue
		}
		if cp, err := decode(doc.Checkpoint, ""); err == nil {
			all = append(all, other{doc.Key, cp})
		}
	}
	return all, nil
}

// largestFile bounds the files that are looked into for a checkpoint, in bytes.
const largestFile = 8 << 20

// others looks at the end of the topic of each other key. A checkpoint in an unfinished
// transaction counts, too: the slot is the same. Each topic takes some questions, so the topics of
// the slots by their names are left out: hundreds of pipelines that begin together would read
// each other's.
func (k *kafka) others(ctx context.Context, slots []string) ([]other, error) {
	known := map[string]bool{}
	for _, slot := range slots {
		known[slot] = true
	}
	return await.Answer(ctx, func() (all []other, err error) {
		found, err := broker.AllTopics(ctx, k.client)
		if err != nil {
			return nil, err
		}
		for i := range found.Topics {
			topic := *found.Topics[i].Topic
			if topic == k.topic || !strings.HasPrefix(topic, k.base+".") || known[slotOf(k.base, topic)] || kafkalog.TopicOf(&found.Topics[i]).Usable(0) != nil {
				continue
			}
			records, err := k.lastIn(ctx, topic, func(*kgo.Record) bool { return true })
			if err != nil && !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.UnknownTopicOrPartition) {
				return nil, fmt.Errorf("topic %s: %w", topic, err)
			}
			for _, r := range records {
				if cp, err := decode(r.Value, ""); err == nil { // a record without a value is skipped
					all = append(all, other{string(r.Key), cp})
				}
			}
		}
		return all, nil
	})
}

// lastIn returns the last record of a topic that counts, if any.
func (k *kafka) lastIn(ctx context.Context, topic string, counts func(*kgo.Record) bool) ([]*kgo.Record, error) {
	logs, err := kafkalog.Open(ctx, k.client, topic, 0)
	if err != nil {
		return nil, err
	}
	records, err := kafkalog.Newest(ctx, logs[0].Raw(), func(r *kgo.Record) bool { return !r.Attrs.IsControl() && !alien(r) && counts(r) })
	return records[max(0, len(records)-1):], err
}
