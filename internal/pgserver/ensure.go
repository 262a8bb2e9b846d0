package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// Ensure returns what Find returns. Where nothing is installed it gets
// PostgreSQL first: as root on Debian and its relatives from the distribution's
// packages, otherwise as a download into the user's cache. It writes what it
// does, one line per step, to progress.
//
// Processes that call it at the same time wait for one another.
func Ensure(ctx context.Context, progress io.Writer) (string, error) {
	if dir, err := Find(); !errors.Is(err, errNotInstalled) {
		return dir, err
	}
	unlock, err := lockCache()
	if err != nil {
		return "", err
	}
	defer unlock()
	// Another process may have installed it while we waited.
	if dir, err := Find(); !errors.Is(err, errNotInstalled) {
		return dir, err
	}
	var errs []error
	if canInstallPackages() {
		err := installPackages(ctx, progress)
		if err == nil {
			return Find()
		}
		errs = append(errs, err)
		fmt.Fprintln(progress, "that failed:", err)
	}
	dir, err := download(MaxVersion, progress)
	if err == nil {
		return dir, nil
	}
	return "", failure.Configf(remedyNotInstalled, "%w: %w", errNotInstalled, errors.Join(append(errs, err)...))
}

// Download returns the directory of the binaries of a major version, which it
// downloads into the user's cache unless they are there.
func Download(version int, progress io.Writer) (string, error) {
	unlock, err := lockCache()
	if err != nil {
		return "", err
	}
	defer unlock()
	return download(version, progress)
}

// cacheDir is where downloads go. Root's own cache is closed to the user that
// the server runs as, hence the system's.
func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/cdc-outbox", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "cdc-outbox"), nil
}

// lockCache waits for the lock that other processes of this user respect.
func lockCache() (unlock func(), err error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return func() { _ = f.Close() }, nil // which releases the lock
}
