package checkpoint

import (
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/config"
)

func TestOpenNamesTheCheckpoint(t *testing.T) {
	cfg := config.Checkpoint{Store: config.StoreFile, Path: filepath.Join(t.TempDir(), "c.json")}
	open := func(cfg config.Checkpoint, key string) Store {
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

	if _, err := Open(t.Context(), config.Checkpoint{Store: "paper"}, "a", nil, "", ""); err == nil {
		t.Error("opened a store that does not exist")
	}
	wantNone(t, open(config.Checkpoint{Store: config.StoreNone}, "a"))
}
