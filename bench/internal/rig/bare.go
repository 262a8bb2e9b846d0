package rig

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// bareRole makes of a benchmark's program a reader.
const bareRole = "rig-reader"

// readBare reads a slot up to a position: the arguments are the server's URL,
// the slot, the position and the publication.
func readBare(ctx context.Context, args []string) (err error) {
	if len(args) != 4 {
		return errors.New("want URL, slot, position and publication")
	}
	end, err := pg.ParseLSN(args[2])
	if err != nil {
		return err
	}
	conn, err := catalog.ConnectReplication(ctx, args[0])
	if err != nil {
		return err
	}
	stream, err := wal.Open(ctx, conn, wal.Options{
		Slot: args[1], Publication: args[3], StatusInterval: 10 * time.Second, LivenessTimeout: 2 * time.Minute, Recycle: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close(ctx)) }()
	for {
		msg, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		if (msg.Kind == wal.Commit || msg.Kind == wal.Keepalive) && msg.End >= end {
			return nil
		}
	}
}
