package store

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// Forget removes the checkpoint under the store's key, as if nothing had ever
// been saved. It is for the end of a connector's life: without the checkpoint
// of an existing slot, nobody can tell whether somebody moved the slot. A missing
// checkpoint is no error.
func Forget(ctx context.Context, s checkpoint.Store) error {
	f, ok := s.(interface{ forget(context.Context) error })
	if !ok {
		return fmt.Errorf("forget checkpoint: %T cannot", s)
	}
	if err := f.forget(ctx); err != nil {
		return fmt.Errorf("forget checkpoint: %w", err)
	}
	return nil
}

// forget writes a record without a value, removed by compaction together with
// earlier records.
func (k *kafka) forget(ctx context.Context) error {
	if err := k.write(ctx, nil); err != nil {
		return fmt.Errorf("topic %s: %w", k.topic, err)
	}
	return nil
}

func (p *postgres) forget(ctx context.Context) error {
	return p.do(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `DELETE FROM `+p.table+` WHERE key = $1`, p.key)
		return err
	})
}

// forget loads the file first, and leaves another connector's file alone.
func (f *file) forget(ctx context.Context) error {
	if _, ok, err := f.Load(ctx); err != nil || !ok {
		return err
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (none) forget(context.Context) error { return nil }
