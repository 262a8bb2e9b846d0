package redisserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// BinEnv is the environment variable naming the server's program, or the
// directory of redis-server or valkey-server. BinEnv comes before everything
// installed.
const BinEnv = "CDC_OUTBOX_REDIS_BIN"

// programs are the servers' names, in the order of preference.
var programs = []string{"redis-server", "valkey-server"}

var errNotInstalled = errors.New("no Redis server is installed")

const remedyNotInstalled = "install Redis 7 or later, or Valkey (Debian, Ubuntu: apt install redis-server; " +
	"macOS: brew install redis), or set " + BinEnv + " to its program"

// Find returns the path of a server's program on this machine: the one that
// BinEnv names, one in PATH, or one that Ensure got earlier.
func Find() (string, error) {
	if name := os.Getenv(BinEnv); name != "" {
		path, err := named(name)
		if err != nil {
			return "", failure.Configf("set "+BinEnv+" to redis-server or valkey-server, or to their directory",
				"%s=%s: %w", BinEnv, name, err)
		}
		return path, nil
	}
	for _, program := range programs {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
	}
	if root, err := unpackedRoot(); err == nil {
		if path, err := inDirectory(filepath.Join(root, "usr", "bin")); err == nil {
			return path, nil
		}
	}
	return "", failure.Configf(remedyNotInstalled, "%w", errNotInstalled)
}

// named returns the program the value of BinEnv stands for.
func named(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		return inDirectory(name)
	default:
		return exec.LookPath(name)
	}
}

func inDirectory(dir string) (string, error) {
	for _, program := range programs {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("neither %s nor %s is in %s", programs[0], programs[1], dir)
}
