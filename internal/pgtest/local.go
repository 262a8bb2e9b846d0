package pgtest

import (
	"context"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

// startLocal starts a server from this machine's binaries.
func startLocal(ctx context.Context, o pgserver.Options) (server, error) {
	bin, err := pgserver.Ensure(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	o.BinDir = bin
	s, err := pgserver.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}
