// Package cachedir is the directory of what we download: servers for the demo and
// tests.
package cachedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Path returns the directory, which need not exist. Root's own cache is closed
// to the users that servers run as, hence the system's.
func Path() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/cdc-outbox", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "cdc-outbox"), nil
}

// Lock makes the directory and waits for the lock that other processes of this
// user respect. The lock ends with the process or with unlock.
func Lock() (unlock func(), err error) {
	dir, err := Path()
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

// Ensure returns what find returns. Where that fails with missing, get is to
// make it and return it, under the lock: processes asking at the same time wait
// for one another.
func Ensure(missing error, find, get func() (string, error)) (string, error) {
	if path, err := find(); !errors.Is(err, missing) {
		return path, err
	}
	unlock, err := Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	// Another process may have got it while we waited.
	if path, err := find(); !errors.Is(err, missing) {
		return path, err
	}
	return get()
}
