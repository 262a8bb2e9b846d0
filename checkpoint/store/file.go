package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// file keeps a checkpoint in a separate file. A save replaces the file as a
// whole, so a reader sees the old or the new content, whatever crashes. There
// is no lock: two processes on a single slot exclude each other through the
// slot, and a warm spare must be able to read.
type file struct {
	path, key string
}

// fileDocument is a file's content. The key is in it, so two connectors with
// the same path are noticed.
type fileDocument struct {
	Key        string          `json:"key"`
	Checkpoint json.RawMessage `json:"checkpoint"`
}

// NewFile returns the store keeping the checkpoint under key in the file at
// path, in an existing directory.
func NewFile(path, key string) (checkpoint.Store, error) {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if err != nil {
		return nil, failure.Configf("mkdir -p "+dir+", writable for cdc-outbox, on a disk that outlives the container",
			"checkpoint.path %s: %w", path, err)
	}
	return &file{path: path, key: key}, nil
}

func (f *file) Load(context.Context) (cp checkpoint.Checkpoint, ok bool, err error) {
	where := "checkpoint file " + f.path
	doc, err := readDocument(f.path)
	switch _, unread := errors.AsType[*fs.PathError](err); {
	case errors.Is(err, fs.ErrNotExist):
		return checkpoint.Checkpoint{}, false, nil
	case unread:
		return checkpoint.Checkpoint{}, false, refused(fmt.Errorf("read checkpoint: %w", err),
			fmt.Sprintf("let the user with id %d read it, or set checkpoint.path to a file of this connector", os.Geteuid()))
	case err != nil:
		return checkpoint.Checkpoint{}, false, unreadable(where, err)
	case doc.Key != f.key:
		return checkpoint.Checkpoint{}, false, failure.Configf("give each connector its own checkpoint.path",
			"%s belongs to the connector with the checkpoint key %q, not to %q", where, doc.Key, f.key)
	}
	cp, err = decode(doc.Checkpoint, where)
	return cp, err == nil, err
}

// readDocument reads a file of a checkpoint.
func readDocument(path string) (doc fileDocument, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return doc, err
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return doc, err
	}
	if doc.Checkpoint == nil {
		return doc, errors.New("it holds no checkpoint")
	}
	return doc, nil
}

func (f *file) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	old, ok, err := f.Load(ctx)
	if err != nil {
		return err
	}
	if ok && !cp.Replaces(&old) {
		return superseded(old, cp)
	}
	b, err := encode(cp)
	if err != nil {
		return err
	}
	doc, err := json.Marshal(fileDocument{Key: f.key, Checkpoint: b})
	if err != nil {
		return fmt.Errorf("encode checkpoint: %w", err)
	}
	if err := replace(f.path, append(doc, '\n')); err != nil {
		return &failure.Error{Class: failure.Transient, Remedy: f.writeRemedy(), Err: fmt.Errorf("save checkpoint: %w", err)}
	}
	return nil
}

func (f *file) Close() {}

// replace writes a file that has either the old or the new content after a
// crash.
func replace(path string, content []byte) error {
	dir := filepath.Dir(path)
	tmp, err := writeTemp(dir, tempPattern(path), content)
	if err != nil {
		return err
	}
	if err = keepOwner(path, tmp); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDirectory(dir)
}

// keepOwner gives the new file the owner, group and mode of the old one or, if
// there is none, the owner and group of the directory: an operator's command
// may run as another user than the connector. Only root may give files away,
// and others need not.
func keepOwner(old, fresh string) error {
	info, err := os.Stat(old)
	first := errors.Is(err, fs.ErrNotExist)
	if first {
		info, err = os.Stat(filepath.Dir(old))
	}
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := os.Chown(fresh, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	if first {
		return nil
	}
	return os.Chmod(fresh, info.Mode().Perm())
}

// tempPattern names the temporary files to replace the file at path.
func tempPattern(path string) string { return filepath.Base(path) + ".*.tmp" }

// writeTemp writes a new, durable file. The name is unique: a process paused
// here must not write later into a file renamed by another. A crash here leaves
// the file behind.
func writeTemp(dir, pattern string, content []byte) (name string, err error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// syncDirectory makes a rename in the directory durable.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
