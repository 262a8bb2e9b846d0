package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
)

// Plugin is the only output plugin whose slots are read.
const Plugin = "pgoutput"

// Slot is a replication slot as pg_replication_slots shows it. Fields that the
// server's version does not have are zero.
type Slot struct {
	Name           string
	Plugin         string
	Type           string // logical or physical
	Database       string
	Active         bool
	ActivePID      int32
	RestartLSN     pg.LSN
	ConfirmedFlush pg.LSN
	WALStatus      string // reserved, extended, unreserved or lost
	// SafeWALSize is how many bytes can be written before the slot is in
	// danger of being lost; nil where nothing limits it, or too late.
	SafeWALSize *int64
	Temporary   bool
	TwoPhase    bool
	Failover    bool // 17
	Synced      bool // 17: copied from a primary, not to be read here
	// InvalidationReason says why a slot can never be read again (17), e.g.
	// wal_removed or idle_timeout.
	InvalidationReason string
}

// Lost reports whether the slot can never be read again, and why.
func (s Slot) Lost() (reason string, lost bool) {
	switch {
	case s.InvalidationReason != "":
		return s.InvalidationReason, true
	case s.WALStatus == "lost":
		return "wal_status is lost", true
	}
	return "", false
}

// Unfit returns why no connector could read the slot of this database, even if
// nobody held it, or nil. The errors are of class failure.Config. (A logical
// slot without a plugin is being created.)
func (s Slot) Unfit(database string) error {
	const (
		rename = "choose another name for source.slot"
		again  = "; if this connector has read a slot of that name before, then also `cdc-outbox setup --accept-gap --yes`: " +
			"what was committed since is not in the new slot, and with --snapshot the rows still in the outbox table are published first"
	)
	switch {
	case s.Type == "physical":
		return failure.Configf(rename+again, "slot %q is a physical slot, for a standby", s.Name)
	case s.Plugin != Plugin && s.Plugin != "":
		return failure.Configf(rename+", or drop it: SELECT pg_drop_replication_slot("+sqltext.Literal(s.Name)+")"+again,
			"slot %q uses the output plugin %q, not %s", s.Name, s.Plugin, Plugin)
	case s.Database != database:
		return failure.Configf("correct the database in source.url, or "+rename+again,
			"slot %q belongs to database %q, not to %q", s.Name, s.Database, database)
	case s.Temporary:
		return failure.Configf(rename+again, "slot %q is temporary: it ends with the session that made it", s.Name)
	case s.TwoPhase:
		return failure.Configf("PostgreSQL 18, while nobody reads it: psql 'dbname="+database+" replication=database' -c 'ALTER_REPLICATION_SLOT "+
			sqltext.Name(s.Name)+" (TWO_PHASE false)'; before 18: "+rename+again,
			"slot %q was created with two_phase: it has prepared transactions sent before they are committed, which cannot be published", s.Name)
	}
	return nil
}

// slotRow has the columns of pg_replication_slots as JSON, so that one query
// serves every version.
type slotRow struct {
	Name           string  `json:"slot_name"`
	Plugin         string  `json:"plugin"`
	Type           string  `json:"slot_type"`
	Database       string  `json:"database"`
	Active         bool    `json:"active"`
	ActivePID      int32   `json:"active_pid"`
	RestartLSN     textLSN `json:"restart_lsn"`
	ConfirmedFlush textLSN `json:"confirmed_flush_lsn"`
	WALStatus      string  `json:"wal_status"`
	SafeWALSize    *int64  `json:"safe_wal_size"`
	Temporary      bool    `json:"temporary"`
	TwoPhase       bool    `json:"two_phase"`
	Conflicting    bool    `json:"conflicting"` // 16, replaced by the reason in 17
	Failover       bool    `json:"failover"`
	Synced         bool    `json:"synced"`
	Invalidation   string  `json:"invalidation_reason"`
}

// textLSN reads an LSN from its text form; null leaves it zero.
type textLSN pg.LSN

func (l *textLSN) UnmarshalText(b []byte) error {
	v, err := pglogrepl.ParseLSN(string(b))
	*l = textLSN(v)
	return err
}

// ReadSlot reads the state of a slot; ok is false where there is none.
func ReadSlot(ctx context.Context, conn *pgx.Conn, name string) (slot Slot, ok bool, err error) {
	var raw string
	err = conn.QueryRow(ctx,
		`SELECT to_jsonb(s)::text FROM pg_replication_slots s WHERE slot_name = $1`, name,
	).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return Slot{}, false, nil
	}
	if err != nil {
		return Slot{}, false, fmt.Errorf("read slot %q: %w", name, err)
	}
	slot, err = parseSlot([]byte(raw))
	if err != nil {
		return Slot{}, false, fmt.Errorf("read slot %q: %w", name, err)
	}
	return slot, true, nil
}

func parseSlot(raw []byte) (Slot, error) {
	var r slotRow
	if err := json.Unmarshal(raw, &r); err != nil {
		return Slot{}, err
	}
	if r.Conflicting && r.Invalidation == "" {
		r.Invalidation = "conflict with recovery"
	}
	return Slot{
		Name:               r.Name,
		Plugin:             r.Plugin,
		Type:               r.Type,
		Database:           r.Database,
		Active:             r.Active,
		ActivePID:          r.ActivePID,
		RestartLSN:         pg.LSN(r.RestartLSN),
		ConfirmedFlush:     pg.LSN(r.ConfirmedFlush),
		WALStatus:          r.WALStatus,
		SafeWALSize:        r.SafeWALSize,
		Temporary:          r.Temporary,
		TwoPhase:           r.TwoPhase,
		Failover:           r.Failover,
		Synced:             r.Synced,
		InvalidationReason: r.Invalidation,
	}, nil
}

// SlotOptions are the choices at a slot's creation.
type SlotOptions struct {
	// Temporary slots vanish with the connection that created them.
	Temporary bool
	// ExportSnapshot keeps a snapshot of the slot's first position usable
	// until the connection runs its next command.
	ExportSnapshot bool
	// Failover has the slot synchronised to standbys. Servers before 17 cannot
	// and are not asked to.
	Failover bool
}

// CreateSlot creates a logical pgoutput slot on a replication connection and
// returns its first position and, if asked for, the name of the snapshot
// there. version is Server.Version. It blocks until every transaction that is
// running has ended, prepared ones included; canceling ctx closes the
// connection. The publication must exist before, or decoding what lies between
// the two fails.
func CreateSlot(ctx context.Context, conn *pgconn.PgConn, name string, version int, opts SlotOptions) (consistent pg.LSN, snapshot string, err error) {
	r, err := pglogrepl.ParseCreateReplicationSlot(conn.Exec(ctx, createSlotCommand(name, version, opts)))
	if err != nil {
		return 0, "", fmt.Errorf("create slot %q: %w", name, classifySlotError(err))
	}
	consistent, err = pglogrepl.ParseLSN(r.ConsistentPoint)
	if err != nil {
		return 0, "", fmt.Errorf("create slot %q: %w", name, err)
	}
	return consistent, r.SnapshotName, nil
}

// createSlotCommand uses the syntax of 14, which later servers still take,
// unless it needs the option list that came with 15 for FAILOVER.
func createSlotCommand(name string, version int, opts SlotOptions) string {
	sql := "CREATE_REPLICATION_SLOT " + sqltext.Name(name)
	if opts.Temporary {
		sql += " TEMPORARY"
	}
	sql += " LOGICAL " + Plugin

	switch failover := opts.Failover && version >= 170000; {
	case failover && opts.ExportSnapshot:
		return sql + " (SNAPSHOT 'export', FAILOVER)"
	case failover:
		return sql + " (SNAPSHOT 'nothing', FAILOVER)"
	case opts.ExportSnapshot:
		return sql + " EXPORT_SNAPSHOT"
	}
	return sql + " NOEXPORT_SNAPSHOT"
}

// DropSlot drops a slot that nobody is using.
func DropSlot(ctx context.Context, conn *pgx.Conn, name string) error {
	if _, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, name); err != nil {
		return fmt.Errorf("drop slot %q: %w", name, classifySlotError(err))
	}
	return nil
}

// classifySlotError adds class and remedy to the errors of slot commands that
// only an operator can fix; others stay as they are.
func classifySlotError(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	var remedy string
	switch pg.Code {
	case pgerrcode.ConfigurationLimitExceeded:
		remedy = "drop a slot nobody needs (SELECT slot_name, active FROM pg_replication_slots; SELECT pg_drop_replication_slot('…');), " +
			"or raise max_replication_slots in postgresql.conf and restart PostgreSQL"
	case pgerrcode.ObjectNotInPrerequisiteState:
		remedy = "ALTER SYSTEM SET wal_level = 'logical'; then restart PostgreSQL"
	case pgerrcode.InsufficientPrivilege:
		remedy = "ALTER ROLE <the connecting role> WITH REPLICATION;"
	case pgerrcode.DuplicateObject:
		remedy = "choose another name for source.slot, or drop the old one: SELECT pg_drop_replication_slot('…');"
	default:
		return err
	}
	return &failure.Error{Class: failure.Config, Remedy: remedy, Err: err}
}
