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
	Begin, End  pg.LSN       // of the log, before and after publication and tables were read
	Flushed     pg.LSN       // the end on disk at Begin; on a standby, of the replayed log
	Horizon     uint64       // each transaction with an earlier id ended in the log before End
	// SchemasTold tells that a stream has the present name of a table after the
	// renaming of its schema (16). Before, the walsender goes on under the
	// announced name (pgoutput.c, init_rel_sync_cache).
	SchemasTold bool
	// NamesStandbys tells that synchronized_standby_slots is set (17), see ReadStandbyWait.
	NamesStandbys bool
	// Failures say why events would be lost or mangled, Warnings name harm to
	// others or hidden facts: see CheckPublication. A missing table is a failure
	// too. Without a publication both are empty.
	Failures, Warnings []error

	needed map[pg.Table][]string // columns, of the tables with a column list
	still  uint64                // see unchanged
	beside logEnd                // read together with the slot
}

// ReadSlot reads the view's slot and, in the same question, the end of the log.
func (v *View) ReadSlot(ctx context.Context, conn *pgx.Conn, s Source) (err error) {
	var raw []byte
	v.beside, err = scanEnd(conn.QueryRow(ctx, selectEnd+`,
		       (SELECT to_jsonb(p)::text FROM pg_catalog.pg_replication_slots p WHERE p.slot_name = $1),
		       COALESCE(pg_catalog.current_setting('synchronized_standby_slots', true), '') <> ''`+fromEnd, s.Slot), &raw, &v.NamesStandbys)
	v.Slot, v.Exists = Slot{}, raw != nil
	if err == nil && v.Exists {
		v.Slot, err = parseSlot(raw)
	}
	if err != nil {
		return fmt.Errorf("read slot %q: %w", s.Slot, err)
	}
	return nil
}

// ReadPublication reads the view's publication and the tables, and looks for
// faults of either.
func (v *View) ReadPublication(ctx context.Context, conn *pgx.Conn, s Source) error {
	end, err := readEnd(ctx, conn)
	if err != nil {
		return err
	}
	return v.readPublication(ctx, conn, s, nil, end)
}

// ReadPublicationSince is ReadPublication after ReadSlot, and after an earlier view of the same
// Source and server, or nil. The log has reached known. While no transaction ends, no question
// is needed: the end of the log came with the slot, and the rest is as before. An end before
// known is read anew: the slot's reader went on in between.
func (v *View) ReadPublicationSince(ctx context.Context, conn *pgx.Conn, s Source, before *View, known pg.LSN) error {
	if v.beside.flushed < known {
		var err error
		if v.beside, err = readEnd(ctx, conn); err != nil {
			return err
		}
	}
	return v.readPublication(ctx, conn, s, before, v.beside)
}

// readPublication reads the rest, unless as before, after the end of the log.
func (v *View) readPublication(ctx context.Context, conn *pgx.Conn, s Source, before *View, end logEnd) error {
	v.Publication, v.Fingerprint, v.Tables, v.Failures, v.Warnings = nil, "", nil, nil, nil
	v.Begin, v.Flushed = end.at, end.flushed
	if end.unchanged(before) {
		v.Publication, v.Fingerprint, v.Tables, v.SchemasTold = before.Publication, before.Fingerprint, before.Tables, before.SchemasTold
		v.Failures, v.Warnings, v.needed = before.Failures, before.Warnings, before.needed
		v.End, v.Horizon, v.still = end.at, end.horizon, before.still
		return nil
	}
	p, ok, err := ReadPublication(ctx, conn, s.Publication)
	if err != nil || !ok {
		return err
	}
	v.Publication, v.Fingerprint = &p, p.Fingerprint(s.Tables)
	if err := v.readTables(ctx, conn, s); err != nil {
		return err
	}
	v.still = end.still()
	return nil
}

func (v *View) readTables(ctx context.Context, conn *pgx.Conn, s Source) (err error) {
	v.SchemasTold = majorVersion(conn) >= 16
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
	end, err := readEnd(ctx, conn)
	if err != nil {
		return err
	}
	v.End, v.Horizon, v.Tables = end.at, end.horizon, infos
	v.Failures, v.Warnings = CheckPublication(*v.Publication, infos, v.needed)
	return nil
}

// logEnd is the end of the log. Everything visible before lies before the end, even if not on
// disk yet. So does the end of each transaction with an id before the horizon.
type logEnd struct {
	at      pg.LSN
	flushed pg.LSN // of the log on disk
	horizon uint64
	next    uint64 // the id behind that of every transaction ended so far
}

// selectEnd begins a question about the end of the log; fromEnd ends it.
const (
	selectEnd = `
		SELECT CASE WHEN r THEN COALESCE(pg_catalog.pg_last_wal_replay_lsn(), '0/0') ELSE pg_catalog.pg_current_wal_insert_lsn() END::text,
		       CASE WHEN r THEN COALESCE(pg_catalog.pg_last_wal_replay_lsn(), '0/0') ELSE pg_catalog.pg_current_wal_flush_lsn() END::text,
		       pg_catalog.pg_snapshot_xmin(s)::text::int8, pg_catalog.pg_snapshot_xmax(s)::text::int8`
	fromEnd = `
		  FROM pg_catalog.pg_is_in_recovery() r, pg_catalog.pg_current_snapshot() s`
)

func readEnd(ctx context.Context, conn *pgx.Conn) (end logEnd, err error) {
	if end, err = scanEnd(conn.QueryRow(ctx, selectEnd+fromEnd)); err != nil {
		return logEnd{}, fmt.Errorf("read the end of the log: %w", err)
	}
	return end, nil
}

// scanEnd reads the row of a question about the end of the log, and more.
func scanEnd(row pgx.Row, more ...any) (end logEnd, err error) {
	var at, flushed string
	err = row.Scan(append([]any{&at, &flushed, &end.horizon, &end.next}, more...)...)
	if err == nil {
		end.at, err = pg.ParseLSN(at)
	}
	if err == nil {
		end.flushed, err = pg.ParseLSN(flushed)
	}
	return end, err
}

// still is next while no transaction with an earlier id runs; 0: one does.
func (e logEnd) still() uint64 {
	if e.horizon == e.next {
		return e.next
	}
	return 0
}

// unchanged reports whether publication and tables are as in the view, which was read behind
// a still end: a transaction that has changed them since would have raised next with its end,
// and one that began before would have kept the end from being still.
func (e logEnd) unchanged(since *View) bool {
	return since != nil && since.still != 0 && since.still == e.next
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
