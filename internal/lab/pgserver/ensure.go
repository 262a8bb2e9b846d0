package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cachedir"
)

// Ensure is Find, but where nothing is installed Ensure gets PostgreSQL first: as root
// on Debian and its relatives from the distribution's packages, otherwise as a download
// into the user's cache. progress gets a line for each step.
//
// Processes calling Ensure at the same time wait for one another.
func Ensure(ctx context.Context, progress io.Writer) (string, error) {
	return cachedir.Ensure(errNotInstalled, Find, func() (string, error) {
		var errs []error
		if canInstallPackages() {
			err := installPackages(ctx, progress)
			if err == nil {
				return Find()
			}
			errs = append(errs, err)
			fmt.Fprintln(progress, "that failed:", err)
		}
		dir, err := download(ctx, defaultDownload, progress)
		if err == nil {
			return dir, nil
		}
		return "", failure.Configf(remedyNotInstalled, "%w: %w", errNotInstalled, errors.Join(append(errs, err)...))
	})
}

// Download returns the directory of the binaries of a major version. Download gets
// them into the user's cache unless they are there, or BinEnv names a directory with
// that version: a build of a version without public binaries.
func Download(ctx context.Context, version int, progress io.Writer) (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		if v, err := Version(dir); err == nil && v == version {
			return dir, nil
		}
	}
	unlock, err := cachedir.Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	dir, err := download(ctx, version, progress)
	if err != nil {
		return "", failure.Configf("set "+BinEnv+" to the directory of initdb and postgres of that version", "%w", err)
	}
	return dir, nil
}
