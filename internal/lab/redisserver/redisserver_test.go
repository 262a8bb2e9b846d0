package redisserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFindTakesTheNamedProgram(t *testing.T) {
	dir := t.TempDir()
	valkey := filepath.Join(dir, "valkey-server")
	if err := os.WriteFile(valkey, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"by its directory": dir, "by its path": valkey} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(redisserver.BinEnv, value)
			if got, err := redisserver.Find(); got != valkey || err != nil {
				t.Errorf("Find() = %q, %v, want %q", got, err, valkey)
			}
		})
	}
	t.Run("and no other", func(t *testing.T) {
		t.Setenv(redisserver.BinEnv, t.TempDir())
		if got, err := redisserver.Find(); err == nil || !strings.Contains(err.Error(), redisserver.BinEnv) {
			t.Errorf("Find() = %q, %v, want an error that names %s", got, err, redisserver.BinEnv)
		}
	})
}
