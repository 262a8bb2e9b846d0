package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// unpublished counts the slot's events behind the checkpoint, up to the position,
// and confirms nothing. Rows moved between partitions count,
// too. The log is compared with the one read before.
func (d *decision) unpublished(ctx context.Context, until pg.LSN) (int, error) {
	n, err := d.readOn(ctx, until)
	if err == nil {
		err = d.released(ctx)
	}
	return n, err
}

// released returns once the server has freed the slot, a moment after the end of
// our stream. Another reader in between is an error.
func (d *decision) released(ctx context.Context) error {
	for ends := time.Now().Add(releasePatience); ; {
		slot, _, err := catalog.ReadSlot(ctx, d.conn, d.cfg.Source.Slot)
		if err != nil || !slot.Active {
			return err
		}
		if time.Now().After(ends) {
			return refuseSlot(ctx, d.conn, slot, d.server.Database)
		}
		if err := backoff.Sleep(ctx, releasePause); err != nil {
			return fmt.Errorf("wait until slot %q is free: %w", slot.Name, err)
		}
	}
}

// releasePause is between two looks at a slot still in use, and releasePatience the time for its
// release.
const (
	releasePause    = 50 * time.Millisecond
	releasePatience = 5 * time.Second
)

func (d *decision) readOn(ctx context.Context, until pg.LSN) (n int, err error) {
	past := d.past()
	stream, err := d.replayed(ctx, past)
	if err != nil {
		return 0, err
	}
	defer catalog.Close(stream)
	replay, owned := checkpoint.NewReplay(past), d.owned()
	for {
		msg, err := stream.Next(ctx)
		if err != nil {
			return 0, fmt.Errorf("read the log up to %s: %w", until, err)
		}
		at := msg.Row.Position.CommitLSN
		switch msg.Kind {
		case wal.Insert:
			if !d.session.ours(msg.Row.Relation) && !owned.Has(msg.Row.Relation.OID, at) {
				continue
			}
		case wal.LogicalMessage:
			if msg.NonTransactional {
				if at > past.Known {
					n++
				}
				continue
			}
		case wal.Commit, wal.Keepalive:
			if _, err := replay.Reached(msg.End); err != nil {
				return 0, err
			}
			if msg.End >= until {
				return n, nil
			}
			continue
		default:
			continue
		}
		if err := replay.Transaction(checkpoint.LandmarkOf(&msg.Row)); err != nil {
			return 0, err
		}
		if at >= past.Known {
			n++
		}
	}
}
