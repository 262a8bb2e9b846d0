package pgserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/cachedir"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// template is a data directory made by initdb once. A copy takes a tenth of the time.
// The cache directory keeps a template for each kind of binaries and user. Servers made
// from copies share a system identifier.
type template struct {
	dir      string
	password string // of the superuser
}

// openTemplate returns the template for the binaries, and makes a missing template.
// Other processes of this user wait meanwhile.
func openTemplate(ctx context.Context, binDir string, runAs account) (template, error) {
	cache, err := cachedir.Path()
	if err != nil {
		return template{}, err
	}
	unlock, err := cachedir.Lock()
	if err != nil {
		return template{}, err
	}
	defer unlock()
	version, err := runAs.command(ctx, cache, filepath.Join(binDir, "postgres"), "--version").Output()
	if err != nil {
		return template{}, fmt.Errorf("run %s/postgres: %w", binDir, err)
	}
	kind := sha256.Sum256(fmt.Appendf(version, "%s %d 1000 iterations", binDir, runAs.uid))
	t := template{dir: filepath.Join(cache, fmt.Sprintf("template-%x", kind[:8]))}
	password, err := os.ReadFile(t.passwordFile())
	if errors.Is(err, os.ErrNotExist) {
		return t, t.make(ctx, binDir, runAs)
	}
	t.password = string(password)
	return t, err
}

func (t *template) data() string         { return filepath.Join(t.dir, "data") }
func (t *template) passwordFile() string { return filepath.Join(t.dir, "password") }

// make runs initdb. The password file gets its name last, and so marks the rest as
// complete.
func (t *template) make(ctx context.Context, binDir string, runAs account) error {
	if err := os.RemoveAll(t.dir); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(t.dir, 0o700), runAs.own(t.dir)); err != nil {
		return err
	}
	t.password = rand.Text()
	if err := initdb(ctx, binDir, runAs, t.data(), t.password); err != nil {
		return err
	}
	unfinished := t.passwordFile() + ".new"
	if err := os.WriteFile(unfinished, []byte(t.password), 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, t.passwordFile())
}

// copyTo copies the template to a data directory.
func (t *template) copyTo(ctx context.Context, runAs account, data string) error {
	cmd := runAs.command(ctx, filepath.Dir(data), "cp", "-R", "-p", t.data(), data)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", t.data(), err, child.LastLines(string(out)))
	}
	return nil
}
