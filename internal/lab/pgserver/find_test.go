package pgserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// install makes a directory looking like PostgreSQL's binaries.
func install(t *testing.T, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		script := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", name, version)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestParseVersion(t *testing.T) {
	for line, want := range map[string]int{
		"postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n": 15,
		"postgres (PostgreSQL) 18beta1\n":                        18,
		"postgres (PostgreSQL) 9.6.24\n":                         9,
		"mysqld  Ver 8.0\n":                                      0,
		"":                                                       0,
	} {
		got, err := parseVersion(line)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("parseVersion(%q) = %d, %v, want %d", line, got, err, want)
		}
	}
}

func TestNewestPrefersTheNewestSupported(t *testing.T) {
	v13, v14, v17, v99 := install(t, "13.9"), install(t, "14.2"), install(t, "17.0"), install(t, "99.0")
	for name, tt := range map[string]struct {
		dirs []string
		want string
	}{
		"newest of two":  {[]string{v14, v17}, v17},
		"too old":        {[]string{v13}, ""},
		"too new":        {[]string{v14, v99}, v14},
		"nothing there":  {[]string{t.TempDir()}, ""},
		"nothing at all": {nil, ""},
	} {
		got, ok := newest(tt.dirs)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: newest = %q, %v, want %q", name, got, ok, tt.want)
		}
	}
}

func TestEnvironmentNamesTheBinaries(t *testing.T) {
	good, old := install(t, "16.1"), install(t, "13.1")
	t.Run("usable", func(t *testing.T) {
		t.Setenv(BinEnv, good)
		if got, err := Find(); got != good || err != nil {
			t.Errorf("Find() = %q, %v, want %q", got, err, good)
		}
	})
	t.Run("too old", func(t *testing.T) {
		t.Setenv(BinEnv, old)
		_, err := Find()
		if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
			t.Errorf("Find() error = %v, want a configuration error with a remedy", err)
		}
		if errors.Is(err, errNotInstalled) {
			t.Error("something else would be installed instead of what was asked for")
		}
	})
}
