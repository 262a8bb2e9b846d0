package store

import (
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

func TestOpenNamesTheCheckpoint(t *testing.T) {
	cfg := Options{Store: StoreFile, Path: filepath.Join(t.TempDir(), "c.json")}
	open := func(cfg Options, key string) checkpoint.Store {
		s, err := Open(t.Context(), cfg, key, nil, "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	save(t, open(cfg, "app/slot"), sample(1))
	wantRefusal(t, open(cfg, "app/other"), `"app/slot"`)

	cfg.Key = "app/slot" // wins over the default
	wantLoad(t, open(cfg, "app/other"), sample(1))

	if _, err := Open(t.Context(), Options{Store: "paper"}, "a", nil, "", ""); err == nil {
		t.Error("opened a store that does not exist")
	}
	wantNone(t, open(Options{Store: StoreNone}, "a"))
}
