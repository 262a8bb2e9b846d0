package stream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
)

// A store that fails before there is a session is what health and log name, and
// not PostgreSQL, which is well.
func TestFailingStoreIsBlamedItself(t *testing.T) {
	d := outbox(t)
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := store.NewFile(filepath.Join(dir, "checkpoint.json"), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil { // for everybody, also a superuser
		t.Fatal(err)
	}
	i := d.start(s, &gate{topic: d.topic})
	eventually(t, "the reason", func() bool {
		ok, reasons := i.health.Ready()
		return !ok && strings.Contains(strings.Join(reasons, "\n"), "checkpoint store: save checkpoint")
	})
	if _, reasons := i.health.Ready(); strings.Contains(strings.Join(reasons, "\n"), "PostgreSQL") {
		t.Errorf("reasons %q", reasons)
	}
	if st := i.status(); st.PostgresError != "" || !strings.Contains(st.CheckpointError, "no such file") {
		t.Errorf("status %+v", st)
	}
	eventually(t, "a warning", func() bool { return i.logs.FilterMessageSnippet("the checkpoint store failed").Len() > 0 })
	if n := i.logs.FilterMessageSnippet("PostgreSQL session ended").Len(); n > 0 {
		t.Errorf("%d lines blame PostgreSQL", n)
	}

	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	i.streams()
	if ok, reasons := i.health.Ready(); !ok {
		t.Errorf("not ready once the store works: %q", reasons)
	}
	d.publish(1, 1)
	i.stop()
}
