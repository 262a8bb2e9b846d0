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

// reading is what this instance shows to others, with the tables of its last
// look.
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

// unlike is why a spare would not go on as the instance that reads the slot
// does, as far as that shows it. A checkpoint that only the reader saves would
// look, to whoever takes over from the spare, like a slot that somebody else
// has moved on; and Kafka would miss what goes to standard output.
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

// unnoted is the error of a slot without a checkpoint, or one that is to be created, if
// tables or messages of ours are read from another slot: each event would be published
// twice, or what that one has be left there.
func (s *source) unnoted(ctx context.Context, sql *pgx.Conn, seen checkpoint.Server) error {
	if s.begun != nil || seen.Exists && (s.opts.Checkpoint.Store == store.StoreNone || seen.Slot.Active) {
		return nil // it is meant; nothing would note that it is; or it is its reader's
	}
	infos, err := catalog.ReadTables(ctx, sql, s.opts.Tables)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.store)
	defer cancel()
	verdict, err := store.SecondReader(ctx, sql, s.kept, s.readingOf(infos), seen, s.opts.Siblings)
	return cmp.Or(err, verdict)
}

// withoutCheckpoint says that a slot is read of which no checkpoint is there.
// Unconfirmed events come again, so nothing is lost; but everything lost before
// would not show.
func (s *source) withoutCheckpoint(ctx context.Context, sql *pgx.Conn, slot catalog.Slot) error {
	read := false
	if s.opts.Checkpoint.Store != store.StoreNone && s.begun == nil {
		var err error
		if read, err = catalog.WasRead(ctx, sql, slot.Name); err != nil {
			return err
		}
	}
	if read {
		vanished := checkpoint.Vanished(slot)
		s.log.Warn(vanished.Error(), remedy(vanished))
		return nil
	}
	s.log.Info("there is no checkpoint yet: reading the slot on from its own confirmed position",
		zap.String("slot", slot.Name), zap.Stringer("confirmed", slot.ConfirmedFlush))
	return nil
}
