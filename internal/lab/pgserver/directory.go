package pgserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	dirPattern = "cdc-outbox-pg-*"
	// maxSocketDir is the longest directory whose socket's name,
	// .s.PGSQL.65535, still fits into a socket address (104 bytes on macOS,
	// 108 on Linux).
	maxSocketDir = 103 - len("/.s.PGSQL.65535")
)

// directory is a server's only directory: data, socket, log and a lock file. We hold
// the lock for as long as we live.
type directory struct {
	path  string
	runAs account
	lock  *os.File
}

// newDirectory creates a directory within runAs's reach and removes directories of
// dead owners. The directory of a server without durability is in memory if there is
// room: a database is some hundred files.
func newDirectory(runAs account, durable bool) (*directory, error) {
	parent := os.TempDir()
	if !durable && os.Getenv("TMPDIR") == "" && roomy(memory) {
		parent = memory
	}
	if len(filepath.Join(parent, dirPattern))+10 > maxSocketDir || runAs.drop && !reachable(parent) {
		parent = "/tmp"
	}
	removeAbandoned(parent)
	path, err := os.MkdirTemp(parent, dirPattern)
	if err != nil {
		return nil, fmt.Errorf("create a directory for PostgreSQL: %w", err)
	}
	d := &directory{path: path, runAs: runAs}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

func (d *directory) prepare() error {
	// The lock gets its name only once held, or another process could take the
	// directory for abandoned.
	lock, err := os.OpenFile(filepath.Join(d.path, "lock.new"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	d.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if err := os.Rename(lock.Name(), filepath.Join(d.path, "lock")); err != nil {
		return err
	}
	return d.runAs.own(d.path)
}

func (d *directory) data() string { return filepath.Join(d.path, "data") }
func (d *directory) log() string  { return filepath.Join(d.path, "log") }

func (d *directory) remove() error {
	err := os.RemoveAll(d.path)
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}

// removeAbandoned removes our directories in parent whose lock nobody holds: their
// owner was killed. A directory that cannot be removed stays, and does no harm.
func removeAbandoned(parent string) {
	locks, err := filepath.Glob(filepath.Join(parent, dirPattern, "lock"))
	if err != nil {
		return
	}
	for _, path := range locks {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // another user's
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			// The lock goes last, so another attempt can follow a failure.
			if os.RemoveAll(filepath.Join(filepath.Dir(path), "data")) == nil {
				_ = os.RemoveAll(filepath.Dir(path))
			}
		}
		_ = f.Close()
	}
}

// memory is where Linux mounts a file system in memory.
const memory = "/dev/shm"

// roomy reports whether a file system has room for servers under test: data
// directories of 40 MB, and up to a gigabyte of log each.
func roomy(dir string) bool {
	const room = 6 << 30
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= room
}

// reachable reports whether other users may enter the directory.
func reachable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}
