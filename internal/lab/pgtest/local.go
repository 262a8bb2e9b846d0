package pgtest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

// local is a server of programs of this machine.
type local struct {
	*pgserver.Server
	bin string // their directory
}

func startLocal(ctx context.Context, o options) (server, error) {
	bin := o.BinDir // see Since
	if bin == "" {
		var err error
		if bin, err = pgserver.Ensure(ctx, os.Stderr); err != nil {
			return nil, err
		}
		o.BinDir = bin
	}
	s, err := pgserver.Start(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	return local{s, bin}, nil
}

// Peer implements server.
func (l local) Peer() (host, port string) {
	u, err := url.Parse(l.URL("postgres"))
	if err != nil {
		return "", "" // URL does not make such
	}
	return u.Hostname(), u.Port()
}

// Save implements server.
func (l local) Save(ctx context.Context, path string) error {
	_, err := child.Output(ctx, "", "cp", "-a", l.Data(), path)
	return err
}

// Restore implements server.
func (l local) Restore(ctx context.Context, path string) error {
	if err := os.RemoveAll(l.Data()); err != nil {
		return err
	}
	_, err := child.Output(ctx, "", "cp", "-a", path, l.Data())
	return err
}

// Before implements server.
func (l local) Before(ctx context.Context, script string) error { return l.Shell(ctx, script) }

// Has implements server: downloaded binaries lack most programs.
func (l local) Has(program string) bool {
	_, err := os.Stat(filepath.Join(l.bin, program))
	return err == nil
}
