package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Writable returns why the store could not save a checkpoint now, or nil, as
// far as that shows without a save. For Kafka it is always nil: package admin
// asks for the topic's privileges.
func Writable(ctx context.Context, s checkpoint.Store) error { return mayWrite(ctx, s, false) }

// Forgettable is Writable for Forget.
func Forgettable(ctx context.Context, s checkpoint.Store) error { return mayWrite(ctx, s, true) }

func mayWrite(ctx context.Context, s checkpoint.Store, forget bool) error {
	if w, ok := s.(interface {
		mayWrite(ctx context.Context, forget bool) error
	}); ok {
		return w.mayWrite(ctx, forget)
	}
	return nil
}

// mayWrite does a save's work, short of the last step.
func (f *file) mayWrite(context.Context, bool) error {
	dir := filepath.Dir(f.path)
	tmp, err := writeTemp(dir, tempPattern(f.path), []byte("cdc-outbox: can a checkpoint be written here?\n"))
	if err == nil {
		err = os.Remove(tmp)
	}
	if err == nil {
		err = replaceable(f.path)
	}
	if err == nil {
		return nil
	}
	return refused(fmt.Errorf("checkpoint.path %s cannot be written: %w", f.path, err), f.writeRemedy())
}

func (f *file) writeRemedy() string {
	return fmt.Sprintf("make the directory %s writable for the user with id %d, on a disk that outlives the container and has space left, and the file in it that user's; "+
		"in a container: mount the directory, not the file, and without :ro", filepath.Dir(f.path), os.Geteuid())
}

// refused gives an error of the file system its class. If repeating cannot
// help, the error is one of the configuration.
func refused(err error, remedy string) error {
	class := failure.Transient // a full disk, say
	for _, lasting := range []error{
		syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.EBUSY, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ENOENT, syscall.ENOTDIR,
	} {
		if errors.Is(err, lasting) {
			class = failure.Config
		}
	}
	return &failure.Error{Class: class, Remedy: remedy, Err: err}
}

// mayWrite asks for privileges, and whether the session may write at all. A
// standby about to be promoted may not yet.
func (p *postgres) mayWrite(ctx context.Context, forget bool) error {
	privileges := "SELECT, INSERT, UPDATE"
	if forget {
		privileges = "SELECT, DELETE"
	}
	var may, readOnly bool
	var role string
	err := p.do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
			SELECT (SELECT bool_and(has_table_privilege($1, privilege)) FROM unnest(string_to_array($2, ', ')) privilege),
			       current_setting('transaction_read_only')::bool, current_user::text`, p.table, privileges).Scan(&may, &readOnly, &role)
	})
	switch {
	case err != nil:
		return fmt.Errorf("checkpoint table %s: look at privileges: %w", p.table, err)
	case readOnly:
		return &failure.Error{Class: failure.Transient, Err: fmt.Errorf("checkpoint table %s cannot be written: the session is read-only", p.table),
			Remedy: "connect to the primary (target_session_attrs=read-write in source.url)"}
	case !may:
		return failure.Configf("GRANT "+privileges+" ON "+p.table+" TO "+pgx.Identifier{role}.Sanitize()+";",
			"role %s lacks privileges on the checkpoint table %s: it takes %s", role, p.table, privileges)
	}
	return nil
}
