package stream

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// reading is shown to other instances, with the tables of the last look.
func (s *source) reading() catalog.Reading {
	return s.readingOf(s.tables.lastSeen())
}

func (s *source) readingOf(tables []catalog.TableInfo) catalog.Reading {
	r := catalog.Reading{Slot: s.opts.Slot, Publication: s.opts.Publication, Tables: catalog.OIDs(tables), Saves: s.opts.Checkpoint.Store != store.StoreNone, Kafka: s.opts.IntoKafka}
	if s.opts.Messages {
		r.Prefix = s.opts.Prefix
	}
	return r
}

// unlike is why the spare would go on unlike the slot's reader, as far as shown. If
// the spare saves no checkpoints, a later instance would find the slot beyond the
// reader's last checkpoint, as if moved on by somebody else. If the spare writes to
// standard output, Kafka would miss the events.
func (s *source) unlike(ctx context.Context, sql *pgx.Conn) error {
	if s.opts.Checkpoint.Store == store.StoreNone {
		saves, err := catalog.ReaderSaves(ctx, sql, s.opts.Slot)
		if err != nil {
			return err
		}
		if saves {
			return failure.Configf(store.ShareRemedy(s.opts.Checkpoint)+"; to do without a checkpoint from now on, stop that instance first",
				"the instance that reads slot %q saves checkpoints, and checkpoint.store is none here", s.opts.Slot)
		}
	}
	if s.opts.IntoKafka {
		return nil
	}
	kafka, err := catalog.ReaderFeedsKafka(ctx, sql, s.opts.Slot)
	if err != nil || !kafka {
		return err
	}
	return failure.Configf("remove sink.stdout; or, if events are to go there from now on, stop that instance first",
		"the instance that reads slot %q writes to Kafka, and the sink is standard output here", s.opts.Slot)
}

// unnoted is the slot, existing or to be made, without a checkpoint.
func (s *source) unnoted(seen checkpoint.Server, tables []catalog.TableInfo) *store.Unnoted {
	return &store.Unnoted{
		Seen: seen, Reading: s.readingOf(tables), Siblings: s.opts.Siblings,
		Store: s.kept, Saves: s.opts.Checkpoint.Store != store.StoreNone, Begun: s.begun != nil,
	}
}

// refused is why the slot is not to be read: each event would be published twice, or
// events of another slot be left there.
func (s *source) refused(ctx context.Context, sql *pgx.Conn, seen checkpoint.Server) error {
	infos, err := catalog.ReadTables(ctx, sql, s.opts.Tables)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.store)
	defer cancel()
	verdict, err := s.unnoted(seen, infos).Refused(ctx, sql)
	return cmp.Or(err, verdict)
}

// renamed refuses to begin where a connector of the same tables under another name has left
// parked events, or an accepted gap.
func (s *source) renamed(ctx context.Context, sql *pgx.Conn, seen checkpoint.Server) error {
	if s.leftBehind == nil {
		return nil
	}
	infos, err := catalog.ReadTables(ctx, sql, s.opts.Tables)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.limits.store)
	defer cancel()
	return s.unnoted(seen, infos).LeftBehind(limited, sql, func(f *checkpoint.Former) error { return s.leftBehind(ctx, f) })
}

// withoutCheckpoint logs the start from a slot without a checkpoint. Unconfirmed
// events come again, so nothing is lost; but earlier losses would not show.
func (s *source) withoutCheckpoint(ctx context.Context, sql *pgx.Conn, seen checkpoint.Server) error {
	vanished, err := s.unnoted(seen, nil).Vanished(ctx, sql)
	switch {
	case err != nil:
		return err
	case vanished != nil:
		s.log.Warn(vanished.Error(), remedy(vanished))
	default:
		s.log.Info("there is no checkpoint yet: reading the slot on from its own confirmed position",
			zap.String("slot", seen.Name), zap.Stringer("confirmed", seen.Slot.ConfirmedFlush))
	}
	return nil
}
