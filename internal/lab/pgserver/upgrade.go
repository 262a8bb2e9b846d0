package pgserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// Upgrade runs pg_upgrade on the stopped server, with binaries of a later version
// (see Complete). The server then has the same port, password and directory, and a
// new system identifier. After an error the server is as it was.
func (s *Server) Upgrade(ctx context.Context, binDir string) error {
	data, old := s.dir.data(), s.dir.data()+".old"
	if err := os.Rename(data, old); err != nil {
		return err
	}
	err := initdb(ctx, binDir, s.runAs, data, s.password, "--no-data-checksums")
	if err == nil {
		err = s.upgrade(ctx, old, binDir)
	}
	if err != nil {
		if failed := os.RemoveAll(data); failed != nil {
			return failed
		}
		if failed := os.Rename(old, data); failed != nil {
			return failed
		}
		return err
	}
	s.opts.BinDir, s.Name = binDir, filepath.Join(binDir, "postgres")
	return os.RemoveAll(old)
}

// upgrade copies, so that a failure leaves the old files as they were. The settings
// of our servers are on the command line.
func (s *Server) upgrade(ctx context.Context, old, binDir string) error {
	var settings []string
	for name, value := range s.opts.AllSettings() {
		settings = append(settings, "-c "+name+"="+value)
	}
	options := strings.Join(settings, " ")
	cmd := s.runAs.command(ctx, s.dir.path, filepath.Join(binDir, "pg_upgrade"),
		"--old-bindir", s.opts.BinDir, "--new-bindir", binDir, "--old-datadir", old, "--new-datadir", s.dir.data(),
		"--old-options", options, "--new-options", options, "--username", superuser, "--socketdir", s.dir.path, "--no-sync")
	cmd.Env = append(cmd.Env, "PGPASSWORD="+s.password)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run pg_upgrade: %w: %s", err, child.LastLines(string(out)))
	}
	return nil
}
