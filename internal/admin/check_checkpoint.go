package admin

import (
	"cmp"
	"context"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// checkpoint opens the store, which has conditions of its own (failure mode
// 36), and compares the stored checkpoint with the database as run does before
// streaming.
func (d *doctor) checkpoint(ctx context.Context) {
	const name = "checkpoint"
	switch {
	case d.cfg.Checkpoint.Store == store.StoreNone:
		d.warn(name, "set checkpoint.store to kafka, postgres or file", "checkpoint.store is none: after a restart, a slot that was recreated or advanced, or a disk that was put back, is not noticed")
		d.newSlot(ctx)
		return
	case d.cfg.Checkpoint.Store == store.StoreKafka && d.kafkaDown:
		d.skip(name, "no connection to Kafka")
		return
	case d.refused:
		d.skip(name, "see kafka.checkpoint_topic")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()

	// Beside the connection of the other checks, whose time may be over.
	own, dbErr := open(ctx, d.cfg)
	v := &view{}
	if dbErr == nil {
		defer own.close()
		dbErr = v.ReadSlot(ctx, own.conn, own.source())
	}
	if err := loadCheckpoint(ctx, d.cfg, v); err != nil {
		d.fail(name, err)
		return
	}
	if err := d.storeWritable(ctx); err != nil {
		d.fail(name, err)
		return
	}
	if v.stored != nil {
		d.saved = v.stored.SavedAt
	}
	if dbErr == nil {
		dbErr = own.readServer(ctx, v)
	}
	switch {
	case v.server.InRecovery:
		d.skip(name, "it is about the primary: see postgresql.primary")
	case v.begun != nil && v.mismatch != nil:
		d.fail(name, v.mismatch)
	case d.undecided(v) != nil:
		d.fail(name, cmp.Or(own.renamed(ctx, v, nil), d.undecided(v)))
	case v.gone != nil:
		d.fail(name, v.gone)
	case (v.stored == nil || v.stored.Made) && v.Slot.Active && v.begun == nil:
		d.warn(name, store.ShareRemedy(d.cfg.Checkpoint), "none in %s, although a connector reads the slot: it saves its own elsewhere, or is just starting", storeName(d.cfg))
	case v.stored == nil:
		d.noCheckpoint(ctx, own, v, dbErr)
	case dbErr != nil:
		d.skip(name, v.stored.LSN.String()+"; it cannot be compared with the database: "+dbErr.Error())
	case v.mismatch != nil && !v.Exists:
		d.amend("slot", Skipped, "does not exist, and was read before: see "+name)
		d.fail(name, v.mismatch)
	case v.mismatch != nil && d.found("slot", v.mismatch):
		d.skip(name, "see slot")
	case v.mismatch != nil && lost(v.Slot):
		d.amend("slot", Skipped, "is lost: see "+name)
		d.fail(name, v.mismatch)
	case v.mismatch != nil:
		if v.Publication == nil {
			d.amend("publication", Skipped, "does not exist: see "+name)
		}
		d.fail(name, v.mismatch)
	case v.stored.Made:
		if err := own.renamed(ctx, v, nil); err != nil {
			d.fail(name, err)
		} else {
			d.ok(name, "%s in %s, where setup made the slot; nothing was read of it yet", v.stored.LSN, storeName(d.cfg))
		}
	default:
		d.sameLog(ctx, own, v)
	}
	d.gap(v.stored)
	d.acknowledged(ctx, v.stored)
	d.leftParked(ctx, v.stored)
}

func lost(slot catalog.Slot) bool {
	_, is := slot.Lost()
	return is
}

// gap warns of an accepted gap.
func (d *doctor) gap(stored *checkpoint.Checkpoint) {
	if stored == nil || stored.Accepted == nil {
		return
	}
	d.warn("checkpoint.gap", stream.GapRemedy, "a gap was %s: events may be missing, and retention waits", stored.Accepted)
}

// leftParked fails where events are parked in a topic out of use.
func (d *doctor) leftParked(ctx context.Context, stored *checkpoint.Checkpoint) {
	if stored == nil || d.cfg.Sink.Kafka == nil || d.kafkaDown {
		return
	}
	if err := wiring.LeftParked(ctx, d.cfg, stored.Quarantine); err != nil {
		d.fail("kafka.quarantine", err)
	}
}

// newSlot judges the slot a first start without a checkpoint store would make.
func (d *doctor) newSlot(ctx context.Context) {
	s, err := open(ctx, d.cfg)
	if err != nil {
		return // said by postgresql.connection
	}
	defer s.close()
	v := &view{}
	if err := v.ReadSlot(ctx, s.conn, s.source()); err != nil || v.Exists {
		return
	}
	if refused, _, err := d.unnoted(ctx, s, v); err != nil || refused != nil {
		d.fail("slot", cmp.Or(err, refused))
	}
}

// sameLog compares the log with the checkpoint's, while nobody reads the slot:
// positions alone do not tell once a restored log has grown past the checkpoint.
func (d *doctor) sameLog(ctx context.Context, s *session, v *view) {
	const name = "checkpoint"
	compared := "run compares the log itself when it starts"
	if !v.Slot.Active && v.Slot.ConfirmedFlush < v.stored.LSN {
		same, other := (&decision{view: v, session: s}).recognised(ctx)
		if other != nil {
			d.fail(name, other)
			return
		}
		if same {
			compared = "and its log is the one that was read"
		}
	}
	d.ok(name, "%s in %s fits the database; %s", v.stored.LSN, storeName(d.cfg), compared)
}

// noCheckpoint judges a slot unknown to the store. dbErr is the server's failure to answer,
// if any.
func (d *doctor) noCheckpoint(ctx context.Context, s *session, v *view, dbErr error) {
	if v.begun == nil && dbErr == nil {
		refused, vanished, err := d.unnoted(ctx, s, v)
		switch {
		case err != nil || refused != nil:
			d.fail("slot", cmp.Or(err, refused))
			return
		case vanished != nil:
			d.warn("checkpoint", failure.RemedyOf(vanished), "%s", vanished)
			return
		}
	}
	d.ok("checkpoint", "none yet in %s", storeName(d.cfg))
}

// acknowledged checks that brokers still have the records acknowledged when the
// checkpoint was saved.
func (d *doctor) acknowledged(ctx context.Context, stored *checkpoint.Checkpoint) {
	const name = "kafka.acknowledged"
	if d.kafkaDown {
		return
	}
	compared, err := compareEnds(ctx, d.cfg, stored)
	if err != nil {
		d.skip(name, err.Error())
		return
	}
	if compared == nil {
		return
	}
	switch loss := compared.Loss(*d.cfg.Sink.Kafka); {
	case loss != nil && stored.Notes(loss):
		d.skip(name, "a loss that is noted: see checkpoint")
	case loss != nil:
		d.fail(name, loss)
	case compared.Untold != nil:
		d.skip(name, compared.Untold.Error())
	default:
		d.ok(name, "the logs of %d topics have all that was acknowledged up to the checkpoint", len(stored.Ends))
	}
}

// compareEnds compares the records acknowledged according to the checkpoint with those the
// brokers have; nil: the checkpoint is silent about them.
func compareEnds(ctx context.Context, cfg *config.Config, stored *checkpoint.Checkpoint) (*sink.Comparison, error) {
	if stored == nil || len(stored.Ends) == 0 || cfg.Sink.Kafka == nil {
		return nil, nil
	}
	c := newCluster(cfg)
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	defer c.client.Close()
	return sink.CompareEnds(ctx, c.client, stored.Ends), nil
}

// storeWritable tests whether a checkpoint could be saved in an existing place,
// and leaves nothing behind.
func (d *doctor) storeWritable(ctx context.Context) error {
	exists, err := storeExists(ctx, d.cfg)
	if err != nil || !exists || d.cfg.Checkpoint.Store == store.StoreKafka { // asked for by checkpointTopic
		return err
	}
	opened, err := wiring.OpenStore(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer opened.Close()
	return store.Writable(ctx, opened)
}
