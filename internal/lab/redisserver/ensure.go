package redisserver

import (
	"context"
	"io"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cachedir"
)

// Ensure returns what Find returns. Where nothing is installed, on Debian and
// its relatives, it gets the distribution's package first; no privileges are
// needed. Ensure writes what it does, one line per step, to progress.
//
// Processes that call it at the same time wait for one another.
func Ensure(ctx context.Context, progress io.Writer) (string, error) {
	return cachedir.Ensure(errNotInstalled, Find, func() (string, error) {
		if err := unpackPackages(ctx, progress); err != nil {
			return "", failure.Configf(remedyNotInstalled, "%w: %w", errNotInstalled, err)
		}
		return Find()
	})
}
