package store

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// replaceable returns why the file at path cannot be replaced, although the
// directory can be written to. The file may be a separate mount, as a single
// file in a container, belong to somebody else in a directory like /tmp, or be
// immutable. replaceable changes nothing.
func replaceable(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		return err
	}
	if mounted(path) {
		return &fs.PathError{Op: "replace", Path: path, Err: syscall.EBUSY}
	}
	// A path that may not be removed may not be replaced. The path is no
	// directory, so Rmdir removes nothing.
	err = syscall.Rmdir(path)
	for _, refusal := range []error{syscall.EPERM, syscall.EACCES, syscall.EROFS} {
		if errors.Is(err, refusal) {
			return &fs.PathError{Op: "replace", Path: path, Err: err}
		}
	}
	return nil
}

// mounted tells whether path is a mount, where the system shows the mounts
// (Linux, proc_pid_mountinfo(5)).
func mounted(path string) bool {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return false
	}
	absolute := filepath.Join(dir, filepath.Base(path))
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	defer mounts.Close()
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		const point = 4 // the index of the mount point's field
		if fields := strings.Fields(lines.Text()); len(fields) > point && unescape.Replace(fields[point]) == absolute {
			return true
		}
	}
	return false
}

// unescape reads mountinfo's escapes of separators.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
