package redisserver_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func program(t *testing.T) string {
	t.Helper()
	path, err := redisserver.Ensure(t.Context(), os.Stderr)
	if err != nil {
		t.Skip(err)
	}
	return path
}

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

func TestServerKeepsItsAddress(t *testing.T) {
	s, err := redisserver.Start(t.Context(), redisserver.Options{Program: program(t)})
	if err != nil {
		t.Fatal(err)
	}
	addr, socket := s.Addr(), s.Socket()
	if err := s.Stop(t.Context(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr || s.Socket() != socket {
		t.Errorf("at %s and %s after a restart, was at %s and %s", s.Addr(), s.Socket(), addr, socket)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

func TestStartTellsWhyItFailed(t *testing.T) {
	_, err := redisserver.Start(t.Context(), redisserver.Options{
		Program: program(t), Settings: map[string]string{"maxmemory-policy": "keep-all"},
	})
	if err == nil || !strings.Contains(err.Error(), "maxmemory-policy") {
		t.Errorf("start with a bad setting: %v, want an error that names it", err)
	}
}

func TestEnsureGetsTheProgramFromPackages(t *testing.T) {
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getenv("CDC_OUTBOX_TEST_PACKAGES") == "" {
		t.Skip("downloads packages: set CDC_OUTBOX_TEST_PACKAGES on a Debian without Redis")
	}
	t.Setenv(redisserver.BinEnv, "")
	var progress bytes.Buffer
	path, err := redisserver.Ensure(t.Context(), &progress)
	if err != nil {
		t.Fatal(err)
	}
	s, err := redisserver.Start(t.Context(), redisserver.Options{Program: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	t.Logf("%s%s", progress.String(), path)
}
