package redisserver

import (
	"context"
	"errors"
	"io"

	"github.com/cdc-outbox/cdc-outbox/internal/cachedir"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// Ensure returns what Find returns. Where nothing is installed, on Debian and
// its relatives, it gets the distribution's package first; no privileges are
// needed. It writes what it does, one line per step, to progress.
//
// Processes that call it at the same time wait for one another.
func Ensure(ctx context.Context, progress io.Writer) (string, error) {
	if path, err := Find(); !errors.Is(err, errNotInstalled) {
		return path, err
	}
	unlock, err := cachedir.Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	// Another process may have got it while we waited.
	if path, err := Find(); !errors.Is(err, errNotInstalled) {
		return path, err
	}
	if err := unpackPackages(ctx, progress); err != nil {
		return "", failure.Configf(remedyNotInstalled, "%w: %w", errNotInstalled, err)
	}
	return Find()
}
