package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cachedir"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// releases are the downloads of each major version: the newest minor release with
// binaries. There are none of 19 yet, and the download fails until there are.
var releases = map[int]embeddedpostgres.PostgresVersion{
	14: "14.24.0",
	15: "15.19.0",
	16: "16.15.0",
	17: "17.11.0",
	18: "18.6.0",
	19: "19.0.0",
}

// defaultDownload is the major version to download where none is asked for.
const defaultDownload = 18

// A repository may be out of reach for a moment.
const downloadAttempts = 3

var retryWaits = backoff.Range{First: 5 * time.Second, Longest: 20 * time.Second}

// downloadOf returns the release of a major version, and the cache's directory.
func downloadOf(version int) (release embeddedpostgres.PostgresVersion, cache string, err error) {
	release, ok := releases[version]
	if !ok {
		return "", "", fmt.Errorf("no download of PostgreSQL %d, only of %d to %d", version, MinVersion, MaxVersion)
	}
	cache, err = cachedir.Path()
	return release, cache, err
}

// download fetches and unpacks the binaries of a major version, unless they are
// in the cache. The caller holds the cache's lock.
func download(ctx context.Context, version int, progress io.Writer) (string, error) {
	release, cache, err := downloadOf(version)
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "postgresql-"+string(release))
	bin := filepath.Join(home, "bin")
	if _, err := Version(bin); err == nil {
		return bin, nil
	}
	fmt.Fprintf(progress, "downloading PostgreSQL %s from Maven Central into %s\n", release, home)
	waits := backoff.Series{Range: retryWaits}
	for n := 1; ; n++ {
		err := unpack(release, cache, home)
		if err == nil {
			return bin, nil
		}
		if n == downloadAttempts || waits.Pause(ctx) != nil {
			return "", fmt.Errorf("download PostgreSQL %s: %w", release, err)
		}
	}
}

// unpack lets embedded-postgres fetch, verify and unpack the binaries into home, whole
// or not at all. The library has no function without a server's start; as root the
// start always fails, and does not matter.
func unpack(release embeddedpostgres.PostgresVersion, cache, home string) (err error) {
	work, err := os.MkdirTemp(cache, "unpack-*")
	if err != nil {
		return err
	}
	logs := libraryLogs()
	defer func() {
		err = errors.Join(err, os.RemoveAll(work))
		for _, path := range libraryLogs() {
			if !slices.Contains(logs, path) {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	port, err := freeport.Take()
	if err != nil {
		return err
	}
	unpacked := filepath.Join(work, "postgresql")
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(release).
		Port(uint32(port)).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "run")).
		BinariesPath(unpacked).
		Logger(io.Discard))
	startErr := server.Start()
	if startErr == nil {
		if err := server.Stop(); err != nil {
			return err
		}
	}
	if _, err := Version(filepath.Join(unpacked, "bin")); err != nil {
		return cmp.Or(startErr, err)
	}
	// The temporary directory is ours alone; the contents are for everybody.
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	return os.Rename(unpacked, home)
}

// libraryLogs lists the log files left in the temporary directory by
// embedded-postgres.
func libraryLogs() []string {
	logs, _ := filepath.Glob(filepath.Join(os.TempDir(), "embedded_postgres_log*")) // the pattern is good
	return logs
}
