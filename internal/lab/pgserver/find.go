package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// BinEnv is the environment variable with the directory of initdb and postgres, used
// in preference to everything installed.
const BinEnv = "CDC_OUTBOX_PG_BIN"

// The connector's versions of PostgreSQL.
const (
	MinVersion = 14
	MaxVersion = 19
)

// errNotInstalled: there is no PostgreSQL server.
var errNotInstalled = errors.New("no PostgreSQL server is installed")

// remedyNotInstalled is the user's remedy.
var remedyNotInstalled = fmt.Sprintf("install PostgreSQL %d or later (Debian, Ubuntu: apt install postgresql; "+
	"macOS: brew install postgresql@17), or set %s to the directory of initdb and postgres", MinVersion, BinEnv)

// installDirs are where packages put the binaries of a version, outside PATH:
// Debian, the PostgreSQL project's RPMs, Homebrew on ARM and on Intel.
var installDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
}

// Find returns the directory of the binaries of a supported PostgreSQL on this
// machine: BinEnv's, otherwise the newest installed.
func Find() (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		if _, err := Version(dir); err != nil {
			return "", failure.Configf("set "+BinEnv+" to the directory of initdb and postgres",
				"%s=%s: %w", BinEnv, dir, err)
		}
		return dir, nil
	}
	if dir, ok := newest(installed()); ok {
		return dir, nil
	}
	return "", failure.Configf(remedyNotInstalled, "%w", errNotInstalled)
}

// installed lists the usual directories of the binaries.
func installed() []string {
	var dirs []string
	for _, pattern := range installDirs {
		found, _ := filepath.Glob(pattern) // the only error is a bad pattern
		dirs = append(dirs, found...)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return dirs
}

// newest returns the directory with the highest supported version.
func newest(dirs []string) (dir string, ok bool) {
	best := 0
	for _, d := range dirs {
		v, err := Version(d)
		if err == nil && v > best && v <= MaxVersion {
			dir, best = d, v
		}
	}
	return dir, best > 0
}

// Version returns the major version of the server in the directory, and an error when
// initdb is missing or the version is older than MinVersion.
func Version(binDir string) (int, error) {
	if _, err := os.Stat(filepath.Join(binDir, "initdb")); err != nil {
		return 0, err
	}
	out, err := exec.Command(filepath.Join(binDir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("run postgres --version: %w", err)
	}
	v, err := parseVersion(string(out))
	if err != nil {
		return 0, err
	}
	if v < MinVersion {
		return 0, fmt.Errorf("PostgreSQL %d is older than %d", v, MinVersion)
	}
	return v, nil
}

// majorVersion matches "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)",
// "postgres (PostgreSQL) 18beta1".
var majorVersion = regexp.MustCompile(`^postgres \(PostgreSQL\) (\d+)`)

func parseVersion(line string) (int, error) {
	m := majorVersion.FindStringSubmatch(line)
	if m == nil {
		return 0, fmt.Errorf("no PostgreSQL version in %q", line)
	}
	return strconv.Atoi(m[1])
}
