package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Server is what a PostgreSQL server says about itself and its limits of
// logical replication, as the connected role sees it.
type Server struct {
	Version    int    // server_version_num, e.g. 150004
	SystemID   string // as in IDENTIFY_SYSTEM: survives promotion, not initdb
	Timeline   int32
	Database   string
	InRecovery bool
	WALLevel   string
	// FlushLSN is the end of the WAL on disk; on a standby, of the replayed WAL.
	FlushLSN pg.LSN

	WALSenderTimeout   time.Duration // 0: none
	IdleSlotTimeout    time.Duration // 0: none (always before PostgreSQL 18)
	MaxSlotWALKeepSize int64         // bytes; -1: unlimited
	MaxSlots           int
	UsedSlots          int
	MaxSenders         int
	UsedSenders        int
}

// Major is the major version, e.g. 15.
func (s Server) Major() int { return s.Version / 10000 }

// WALSuffices tells whether wal_level lets a logical slot be created. From
// PostgreSQL 19 on replica does: effective_wal_level becomes logical with the
// first logical slot, and stays so until the last is dropped.
func (s Server) WALSuffices() bool {
	return s.WALLevel == "logical" || s.WALLevel == "replica" && s.Major() >= 19
}

// milliseconds is the expression for a parameter that is a time, NULL where the server lacks it.
// The view pg_settings would read all parameters for a single one.
func milliseconds(parameter string) string {
	return "(extract(epoch FROM current_setting('" + parameter + "', true)::interval) * 1000)::bigint"
}

// The timeline of pg_control_checkpoint lags behind a promotion until the next
// checkpoint; the name of the WAL file being written does not. A standby does
// not allow the question for that name.
var serverQuery = `
SELECT current_setting('server_version_num')::int,
       (SELECT system_identifier::text FROM pg_control_system()),
       CASE WHEN pg_is_in_recovery()
            THEN COALESCE((SELECT received_tli FROM pg_stat_wal_receiver),
                          (SELECT timeline_id FROM pg_control_checkpoint()))
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
       END,
       current_database()::text,
       pg_is_in_recovery(),
       current_setting('wal_level'),
       CASE WHEN pg_is_in_recovery()
            THEN COALESCE(pg_last_wal_replay_lsn(), '0/0')
            ELSE pg_current_wal_flush_lsn()
       END::text,
       ` + milliseconds("wal_sender_timeout") + `,
       COALESCE(` + milliseconds("idle_replication_slot_timeout") + `, 0),
       pg_size_bytes(current_setting('max_slot_wal_keep_size')),
       current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_replication_slots)::int,
       current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_stat_replication)::int`

// ReadServer asks the server about itself.
func ReadServer(ctx context.Context, conn *pgx.Conn) (Server, error) {
	var (
		s                      Server
		lsn                    string
		senderLimit, slotLimit int64
	)
	err := conn.QueryRow(ctx, serverQuery).Scan(
		&s.Version, &s.SystemID, &s.Timeline, &s.Database, &s.InRecovery,
		&s.WALLevel, &lsn, &senderLimit, &slotLimit, &s.MaxSlotWALKeepSize,
		&s.MaxSlots, &s.UsedSlots, &s.MaxSenders, &s.UsedSenders)
	if err != nil {
		return Server{}, fmt.Errorf("read server state: %w", err)
	}

	s.WALSenderTimeout = time.Duration(senderLimit) * time.Millisecond
	s.IdleSlotTimeout = time.Duration(slotLimit) * time.Millisecond
	if s.FlushLSN, err = pglogrepl.ParseLSN(lsn); err != nil {
		return Server{}, fmt.Errorf("read server state: %w", err)
	}
	return s, nil
}

// Identity tells one database cluster and its history from another.
type Identity struct {
	SystemID string
	Timeline int32
	FlushLSN pg.LSN
	Database string
}

// Identify sends IDENTIFY_SYSTEM on a replication connection.
func Identify(ctx context.Context, conn *pgconn.PgConn) (Identity, error) {
	r, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return Identity{}, fmt.Errorf("identify system: %w", err)
	}
	return Identity{
		SystemID: r.SystemID,
		Timeline: r.Timeline,
		FlushLSN: r.XLogPos,
		Database: r.DBName,
	}, nil
}
