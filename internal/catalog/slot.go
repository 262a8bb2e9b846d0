package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Plugin is the only output plugin whose slots are read.
const Plugin = "pgoutput"

// SnapshotWithSlot is the remedy where a snapshot is asked for, and nobody may
// create the slot it belongs to.
const SnapshotWithSlot = "set source.create to true: with source.snapshot: initial, run creates the slot at its first start, together with the snapshot that it publishes; " +
	"or set source.snapshot to never, and run `cdc-outbox setup`"

// Slot is a replication slot as in pg_replication_slots; tags name the columns.
// Fields unknown to the server's version are zero.
type Slot struct {
	Name           string `json:"slot_name"`
	Plugin         string `json:"plugin"`
	Type           string `json:"slot_type"` // logical or physical
	Database       string `json:"database"`
	Active         bool   `json:"active"`
	ActivePID      int32  `json:"active_pid"`
	RestartLSN     pg.LSN `json:"-"`
	ConfirmedFlush pg.LSN `json:"-"`
	WALStatus      string `json:"wal_status"` // reserved, extended, unreserved or lost
	// SafeWALSize is how many bytes can be written before the slot is in danger of
	// being lost; nil where nothing limits it, or too late.
	SafeWALSize *int64 `json:"safe_wal_size"`
	Temporary   bool   `json:"temporary"`
	TwoPhase    bool   `json:"two_phase"`
	Failover    bool   `json:"failover"` // 17
	Synced      bool   `json:"synced"`   // 17: copied from a primary, not to be read here
	// CatalogXmin has the 32 bits of a transaction's id: the slot has no earlier
	// transaction. 0: not known.
	CatalogXmin uint32 `json:"catalog_xmin,string"`
	// SyncSkipped says why a standby's last look at the primary's slot did not
	// bring its copy up to date (19), e.g. wal_not_flushed.
	SyncSkipped string `json:"slotsync_skip_reason"`
	// InvalidationReason says why a slot can never be read again (17), e.g.
	// wal_removed or idle_timeout.
	InvalidationReason string `json:"invalidation_reason"`
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

// Creating reports whether the slot is still being created, which waits for
// every running transaction. It has no position yet.
func (s Slot) Creating() bool { return s.Type == "logical" && s.ConfirmedFlush == 0 }

// Unfit returns why no connector could read the slot of this database, even if
// nobody held it, or nil. The errors are of class failure.Config. (A logical
// slot without a plugin is being created.)
func (s Slot) Unfit(database string) error {
	const (
		rename = "choose another name for source.slot"
		again  = "; if this connector has read a slot of that name before, then also: " + AcceptGap
	)
	switch {
	case s.Type == "physical":
		return failure.Configf(rename+again, "slot %q is a physical slot, for a standby", s.Name)
	case s.Plugin != Plugin && s.Plugin != "":
		return failure.Configf(rename+", or, if nobody needs it, drop it: SELECT pg_drop_replication_slot("+pgsql.Literal(s.Name)+")"+again,
			"slot %q uses the output plugin %q, not %s", s.Name, s.Plugin, Plugin)
	case s.Database != database:
		return failure.Configf("correct the database in source.url, or "+rename+again,
			"slot %q belongs to database %q, not to %q", s.Name, s.Database, database)
	case s.Temporary:
		return failure.Configf(rename+again, "slot %q is temporary: it ends with the session that made it", s.Name)
	case s.TwoPhase:
		return failure.Configf("PostgreSQL 18, while nobody reads it: psql 'dbname="+database+" replication=database' -c 'ALTER_REPLICATION_SLOT "+
			pgsql.Name(s.Name)+" (TWO_PHASE false)'; before 18: "+rename+again,
			"slot %q was created with two_phase: it has prepared transactions sent before they are committed, which cannot be published", s.Name)
	}
	return nil
}

// textLSN reads an LSN from its text form; null is zero.
type textLSN pg.LSN

func (l *textLSN) UnmarshalText(b []byte) error {
	v, err := pglogrepl.ParseLSN(string(b))
	*l = textLSN(v)
	return err
}

// ReadSlot reads the state of a slot; ok is false for a missing slot. The state
// comes as JSON, so one query serves every version.
func ReadSlot(ctx context.Context, conn *pgx.Conn, name string) (slot Slot, ok bool, err error) {
	var raw []byte
	err = conn.QueryRow(ctx, `SELECT to_jsonb(s)::text FROM pg_replication_slots s WHERE slot_name = $1`, name).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return Slot{}, false, nil
	}
	if err == nil {
		slot, err = parseSlot(raw)
	}
	if err != nil {
		return Slot{}, false, fmt.Errorf("read slot %q: %w", name, err)
	}
	return slot, true, nil
}

// WasRead reports whether a slot was read since its creation. The server counts
// reads, and forgets the count in a crash: false proves nothing.
func WasRead(ctx context.Context, conn *pgx.Conn, name string) (read bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication_slots WHERE slot_name = $1 AND total_txns > 0)`, name).Scan(&read)
	if err != nil {
		return false, fmt.Errorf("read the statistics of slot %q: %w", name, err)
	}
	return read, nil
}

func parseSlot(raw []byte) (slot Slot, err error) {
	row := struct {
		*Slot
		RestartLSN     textLSN `json:"restart_lsn"`
		ConfirmedFlush textLSN `json:"confirmed_flush_lsn"`
		Conflicting    bool    `json:"conflicting"` // 16, replaced by the reason in 17
	}{Slot: &slot}
	err = json.Unmarshal(raw, &row)
	slot.RestartLSN, slot.ConfirmedFlush = pg.LSN(row.RestartLSN), pg.LSN(row.ConfirmedFlush)
	if row.Conflicting && slot.InvalidationReason == "" {
		slot.InvalidationReason = "conflict with recovery"
	}
	return slot, err
}

// SlotOptions are the choices at a slot's creation.
type SlotOptions struct {
	// Temporary slots vanish with their connection.
	Temporary bool
	// ExportSnapshot keeps a snapshot of the slot's first position usable until
	// the connection runs its next command.
	ExportSnapshot bool
	// Failover has the slot synchronised to standbys. Servers before 17 cannot
	// and are not asked to.
	Failover bool
}

// CreateSlot creates a logical pgoutput slot on a replication connection and
// returns the first position and, if asked for, the name of the snapshot there.
// version is Server.Version. It blocks until every running transaction has
// ended, including prepared ones; canceling ctx closes the connection. The
// publication must exist before, or decoding the log between the two fails.
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

// createSlotCommand uses the syntax of 14, still valid for later servers, or
// for FAILOVER the option list of 15.
func createSlotCommand(name string, version int, opts SlotOptions) string {
	sql := "CREATE_REPLICATION_SLOT " + pgsql.Name(name)
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

// FailoverSlots is the first major version with failover slots.
const FailoverSlots = 17

// alterPatience bounds an ALTER_REPLICATION_SLOT, which would wait for the end
// of another reader.
const alterPatience = 5 * time.Second

// AlterFailover makes an existing slot of PostgreSQL 17 a failover slot, on a
// replication connection. Nobody may read the slot meanwhile. An error closes
// the connection, or leaves it usable.
func AlterFailover(ctx context.Context, conn *pgconn.PgConn, name string) error {
	ctx, cancel := context.WithTimeout(ctx, alterPatience)
	defer cancel()
	if _, err := conn.Exec(ctx, alterFailover(name)).ReadAll(); err != nil {
		return fmt.Errorf("make slot %q a failover slot: %w", name, classifySlotError(err))
	}
	return nil
}

func alterFailover(name string) string {
	return "ALTER_REPLICATION_SLOT " + pgsql.Name(name) + " (FAILOVER true)"
}

// DropSlot drops a slot nobody is using.
func DropSlot(ctx context.Context, conn *pgx.Conn, name string) error {
	if _, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, name); err != nil {
		return fmt.Errorf("drop slot %q: %w", name, classifySlotError(err))
	}
	return nil
}

// classifySlotError adds class and remedy to the errors of slot commands only
// an operator can fix; others stay as they are.
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
		if pg.Routine == routineOutputPlugin {
			remedy = AllowPlugin
		}
	case pgerrcode.DuplicateObject:
		remedy = "choose another name for source.slot, or, if nobody needs the old one, drop it: SELECT pg_drop_replication_slot('…');"
	default:
		return err
	}
	return &failure.Error{Class: failure.Config, Remedy: remedy, Err: err}
}
