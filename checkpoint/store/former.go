package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// LeftBehind asks judge about the checkpoints of the same tables or messages under other keys,
// if nobody reads their slots, and they name a quarantine or an accepted gap: after a change of
// source.slot or checkpoint.key, no other checkpoint knows of these. The first error ends the
// questions. ctx is for the search alone.
func (u *Unnoted) LeftBehind(ctx context.Context, conn *pgx.Conn, judge func(*checkpoint.Former) error) error {
	all, err := u.former(ctx, conn)
	for i := 0; err == nil && i < len(all); i++ {
		err = judge(&all[i])
	}
	return err
}

func (u *Unnoted) former(ctx context.Context, conn *pgx.Conn) (all []checkpoint.Former, err error) {
	kept, err := u.others(ctx, conn)
	if err != nil {
		return nil, err
	}
	for i := range kept {
		cp := &kept[i]
		if cp.Quarantine == "" && cp.Accepted == nil || !cp.Shares(u.Reading.Tables, u.Seen.Scope) || slices.Contains(u.Siblings, cp.Slot) {
			continue
		}
		if cp.Slot != u.Reading.Slot {
			slot, _, err := catalog.ReadSlot(ctx, conn, cp.Slot)
			if err != nil {
				return nil, err
			}
			if slot.Active { // a second connector, which goes on by itself
				continue
			}
		}
		all = append(all, checkpoint.Former{Key: cp.key, Checkpoint: cp.Checkpoint})
	}
	return all, nil
}
