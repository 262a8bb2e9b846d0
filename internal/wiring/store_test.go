package wiring

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

func TestStoreKey(t *testing.T) {
	for _, tt := range []struct{ name, url, key, want string }{
		{"database and slot", "postgres://cdc@db/app", "", "app/s"},
		{"the user's database", "postgres://cdc@db", "", "cdc/s"},
		{"keywords", "host=db user=cdc dbname='my app'", "", "my app/s"},
		{"by name", "postgres://cdc@db/app", "orders", "orders"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Source.URL, cfg.Source.Slot, cfg.Checkpoint.Key = setting.Secret(tt.url), "s", tt.key
			if got, err := cfg.StoreKey(); got != tt.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestOpenStore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*config.Config)
		class  failure.Class
		remedy string // "" for success
	}{
		{"file", func(c *config.Config) {
			c.Checkpoint.Store, c.Checkpoint.Path = store.StoreFile, filepath.Join(t.TempDir(), "cp.json")
		}, 0, ""},
		{"none", func(c *config.Config) { c.Checkpoint.Store = store.StoreNone }, 0, ""},
		{"broker down", func(c *config.Config) { c.Sink.Kafka.Brokers = []string{"127.0.0.1:1"} },
			failure.Transient, "correct sink.kafka.brokers (127.0.0.1:1)"},
		{"PostgreSQL down", func(c *config.Config) { c.Checkpoint.Store = store.StorePostgres },
			failure.Transient, "start PostgreSQL, or correct host and port in source.url"},
		{"missing CA", func(c *config.Config) { c.Sink.Kafka.TLS.CAFile = "no-such-file" }, failure.Config, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Source.URL = "postgres://cdc@127.0.0.1:1/app"
			tt.change(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			store, err := OpenStore(ctx, &cfg)
			if err == nil {
				store.Close()
			}
			if (err == nil) != (tt.remedy == "" && tt.class == 0) || failure.ClassOf(err) != tt.class ||
				!strings.Contains(failure.RemedyOf(err), tt.remedy) {
				t.Errorf("got %v, class %v, remedy %q", err, failure.ClassOf(err), failure.RemedyOf(err))
			}
		})
	}
}
