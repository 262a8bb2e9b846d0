package store

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func filePlace(t *testing.T) place {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	return place{
		open: func(t *testing.T, key string) checkpoint.Store {
			return must.Get(NewFile(path, key))(t)
		},
		write: func(t *testing.T, key, value string) {
			doc := fmt.Sprintf(`{"key": %q, "checkpoint": %s}`, key, value)
			must.OK(t, os.WriteFile(path, []byte(doc), 0o600))
		},
	}
}

func TestFileOfAnotherKeyIsRefused(t *testing.T) {
	p := filePlace(t)
	save(t, p.store(t, "a"), sample(1))
	other := p.store(t, "b")
	wantRefusal(t, other, `belongs to the connector with the checkpoint key "a"`)
	if err := other.Save(t.Context(), sample(2)); failure.ClassOf(err) != failure.Config {
		t.Errorf("save over another connector's checkpoint: %v", err)
	}
	wantLoad(t, p.store(t, "a"), sample(1))
}

func TestFileThatIsNoJSONIsRefused(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "text": "hello", "torn": `{"key": "a", "check`, "null": "null"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "checkpoint.json")
			must.OK(t, os.WriteFile(path, []byte(content), 0o600))
			s := must.Get(NewFile(path, "a"))(t)
			wantRefusal(t, s, "is not a checkpoint of cdc-outbox")
		})
	}
}

// A repetition would not make a file of the directory.
func TestFileThatIsADirectoryIsRefused(t *testing.T) {
	s := must.Get(NewFile(t.TempDir(), "a"))(t)
	_, _, err := s.Load(t.Context())
	for what, err := range map[string]error{"Load": err, "Writable": Writable(t.Context(), s)} {
		if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
			t.Errorf("%s = %v, want a configuration error with a remedy", what, err)
		}
	}
}

func TestFileNeedsItsDirectory(t *testing.T) {
	_, err := NewFile(filepath.Join(t.TempDir(), "missing", "checkpoint.json"), "a")
	if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
		t.Errorf("missing directory: %v, want a configuration error with a remedy", err)
	}
}

func TestFileLeavesNothingElseBehind(t *testing.T) {
	dir := t.TempDir()
	s := must.Get(NewFile(filepath.Join(dir, "checkpoint.json"), "a"))(t)
	save(t, s, sample(1))
	save(t, s, sample(2))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v in the directory (%v), want the checkpoint alone", entries, err)
	}
}

// Failure mode 67: an operator's command as root leaves the file to the connector's user.
func TestFileKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	s := must.Get(NewFile(path, "k"))(t)
	defer s.Close()
	save(t, s, sample(1))
	must.OK(t, os.Chown(path, 4711, 4712))
	must.OK(t, os.Chmod(path, 0o640))
	save(t, s, sample(2))
	info := must.Get(os.Stat(path))(t)
	owner := info.Sys().(*syscall.Stat_t)
	if owner.Uid != 4711 || owner.Gid != 4712 || info.Mode().Perm() != 0o640 {
		t.Errorf("the file belongs to %d and %d, with mode %v", owner.Uid, owner.Gid, info.Mode())
	}
}
