package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Source names the tables, publication and slot of a pipeline.
type Source struct {
	Slot, Publication string
	Tables            []pg.Table
	// Needed returns the columns of a table events cannot do without. An error
	// means that the table's own columns do not suffice; the stream tells.
	Needed func(*pg.Relation) ([]string, error)
}

// View is a server's state of a Source. For a comparison with a checkpoint,
// read the slot, then load the checkpoint, then read the publication: see
// checkpoint.Server.
type View struct {
	Slot        Slot
	Exists      bool         // whether the slot does
	Publication *Publication // nil: none
	Fingerprint string       // of the publication; empty for none
	Tables      []TableInfo  // unless a table is missing
	Begin, End  pg.LSN       // of the log, before and after the tables were read
	Horizon     uint64       // each transaction with an earlier id ended in the log before End
	// SchemasTold tells that a stream has the present name of a table after the
	// renaming of its schema (16). Before, the walsender goes on under the
	// announced name (pgoutput.c, init_rel_sync_cache).
	SchemasTold bool
	// Failures say why events would be lost or mangled, Warnings name harm to
	// others or hidden facts: see CheckPublication. A missing table is a failure
	// too. Without a publication both are empty.
	Failures, Warnings []error

	needed map[pg.Table][]string // columns, of the tables with a column list
}

// ReadSlot reads the view's slot.
func (v *View) ReadSlot(ctx context.Context, conn *pgx.Conn, s Source) (err error) {
	v.Slot, v.Exists, err = ReadSlot(ctx, conn, s.Slot)
	return err
}

// ReadPublication reads the view's publication and the tables, and looks for
// faults of either.
func (v *View) ReadPublication(ctx context.Context, conn *pgx.Conn, s Source) error {
	v.Publication, v.Fingerprint, v.Tables, v.Failures, v.Warnings = nil, "", nil, nil, nil
	p, ok, err := ReadPublication(ctx, conn, s.Publication)
	if err != nil || !ok {
		return err
	}
	v.Publication, v.Fingerprint = &p, p.Fingerprint(s.Tables)
	return v.readTables(ctx, conn, s)
}

func (v *View) readTables(ctx context.Context, conn *pgx.Conn, s Source) (err error) {
	v.SchemasTold = majorVersion(conn) >= 16
	if v.Begin, _, err = readEnd(ctx, conn); err != nil {
		return err
	}
	infos, err := ReadTables(ctx, conn, s.Tables)
	if failure.ClassOf(err) == failure.Config {
		v.Failures = []error{err}
		return nil
	}
	if err != nil {
		return err
	}
	v.needed = make(map[pg.Table][]string)
	for _, t := range s.Tables {
		if v.Publication.ColumnList(t) == nil {
			continue
		}
		rel, ok, err := ReadColumns(ctx, conn, t)
		if err != nil {
			return err
		}
		if ok {
			v.needed[t], _ = s.Needed(rel)
		}
	}
	if v.End, v.Horizon, err = readEnd(ctx, conn); err != nil {
		return err
	}
	v.Tables = infos
	v.Failures, v.Warnings = CheckPublication(*v.Publication, infos, v.needed)
	return nil
}

// readEnd returns the end of the log. Everything visible before lies before the
// end, even if not on disk yet. So does the end of each transaction with an id
// before the horizon.
func readEnd(ctx context.Context, conn *pgx.Conn) (end pg.LSN, horizon uint64, err error) {
	var text string
	err = conn.QueryRow(ctx, `SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN COALESCE(pg_catalog.pg_last_wal_replay_lsn(), '0/0')
		ELSE pg_catalog.pg_current_wal_insert_lsn() END::text, pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8`).Scan(&text, &horizon)
	if err == nil {
		end, err = pg.ParseLSN(text)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read the end of the log: %w", err)
	}
	return end, horizon, nil
}

// Unfit is nil where the tables can be read through the publication.
func (v *View) Unfit() error { return errors.Join(v.Failures...) }

// Missing is the missing table, or nil.
func (v *View) Missing() *MissingTable {
	missing, _ := errors.AsType[*MissingTable](v.Unfit())
	return missing
}

// UnfitOf is Unfit of some of the tables.
func (v *View) UnfitOf(which func(pg.Table) bool) error {
	tables := slices.DeleteFunc(slices.Clone(v.Tables), func(t TableInfo) bool { return !which(t.Table) })
	failures, _ := CheckPublication(*v.Publication, tables, v.needed)
	return errors.Join(failures...)
}
