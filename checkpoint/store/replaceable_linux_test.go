package store

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A writable directory is not enough: the file must be replaceable.
func TestFileThatCannotBeReplacedIsNotWritable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts, and becomes another user")
	}
	for name, hold := range map[string]func(t *testing.T, path string){
		"a mount of its own": func(t *testing.T, path string) {
			source := filepath.Join(t.TempDir(), "source")
			must.OK(t, os.WriteFile(source, nil, 0o600))
			if err := syscall.Mount(source, path, "", syscall.MS_BIND, ""); err != nil {
				t.Skipf("mount: %v", err)
			}
			t.Cleanup(func() {
				if err := syscall.Unmount(path, 0); err != nil {
					t.Error(err)
				}
			})
		},
		"another user's": func(t *testing.T, path string) {
			dir := filepath.Dir(path)
			must.OK(t, errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, os.ModeSticky|0o777)))
			asNobody(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "check point.json") // mountinfo escapes the space
			s := must.Get(NewFile(path, "a"))(t)
			save(t, s, sample(1))
			if err := Writable(t.Context(), s); err != nil {
				t.Fatalf("before: %v", err)
			}
			hold(t, path)
			if err := Writable(t.Context(), s); failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
				t.Errorf("Writable = %v, want a configuration error with a remedy", err)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("looking at it has harmed it: %v", err)
			}
		})
	}
}

// asNobody has the test's thread use files as another user. The thread ends with
// the test.
func asNobody(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	const nobody = 65534
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { _, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, 0, 0, 0) })
}
