package catalog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Reading is what an instance announces of the slot it reads, or waits for.
type Reading struct {
	Slot string
	// Publication is the one the slot is read through. It is not shown.
	Publication string

	Tables []uint32 // OIDs
	Prefix string   // of messages; "": none
	Saves  bool     // checkpoints
	Kafka  bool     // gets the events
}

// The locks of a Reading, beside readerLock.
const (
	tableLock  = "cdc-outbox reads table"    // of an OID
	prefixLock = "cdc-outbox reads messages" // of a prefix
	savesLock  = "cdc-outbox checkpoints"    // of the slot
	kafkaLock  = "cdc-outbox Kafka"          // of the slot
)

// StandBy announces, to others and to ReadStandbys of the same slot, that the
// connection's instance waits for it, until the connection ends. It does not
// wait.
func (r Reading) StandBy(ctx context.Context, conn *pgx.Conn) error {
	return showing(ctx, conn, append(r.sources(), lock{standbyLock, r.Slot}))
}

// Show announces, to Orphaned too, that the connection's instance reads the
// slot, until the connection ends. It does not wait.
func (r Reading) Show(ctx context.Context, conn *pgx.Conn) error {
	locks := append(r.sources(), lock{readerLock, r.Slot})
	if r.Saves {
		locks = append(locks, lock{savesLock, r.Slot})
	}
	if r.Kafka {
		locks = append(locks, lock{kafkaLock, r.Slot})
	}
	return showing(ctx, conn, locks)
}

func (r Reading) sources() (locks []lock) {
	for _, oid := range r.Tables {
		locks = append(locks, lock{tableLock, strconv.FormatUint(uint64(oid), 10)})
	}
	if r.Prefix != "" {
		locks = append(locks, lock{prefixLock, r.Prefix})
	}
	return locks
}

// ReaderSaves reports whether an instance announces reading the slot, and saves
// checkpoints.
func ReaderSaves(ctx context.Context, conn *pgx.Conn, slot string) (bool, error) {
	return shows(ctx, conn, lock{savesLock, slot})
}

// ReaderFeedsKafka is ReaderSaves for an instance whose events go to Kafka.
func ReaderFeedsKafka(ctx context.Context, conn *pgx.Conn, slot string) (bool, error) {
	return shows(ctx, conn, lock{kafkaLock, slot})
}

func shows(ctx context.Context, conn *pgx.Conn, l lock) (is bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks l WHERE `+shown+`)`, l.name, l.of).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("look for the instance that reads slot %q: %w", l.of, err)
	}
	return is, nil
}

// OtherReaders returns the database's other slots from which running instances
// read a table or the messages of r, or wait to.
func (r Reading) OtherReaders(ctx context.Context, conn *pgx.Conn) (slots []string, err error) {
	for _, from := range r.sources() {
		rows, _ := conn.Query(ctx, `
			SELECT s.slot_name::text
			  FROM pg_locks l
			  JOIN pg_locks reader ON reader.pid = l.pid AND reader.locktype = 'advisory' AND reader.objsubid = 2
			       AND reader.classid IN (hashtext($3)::oid, hashtext($4)::oid)
			  JOIN pg_replication_slots s ON hashtext(s.slot_name::text)::oid = reader.objid AND s.database = current_database()
			 WHERE `+shown+` AND s.slot_name <> $5
			 ORDER BY 1`, from.name, from.of, readerLock, standbyLock, r.Slot)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("look for other instances that read the same: %w", err)
		}
		slots = append(slots, found...)
	}
	return slots, nil
}

// Unread returns the other slots of this database that nobody reads and that
// may have events of r: its tables are published, or its publication is there.
// A slot does not say through which publication it was read.
func (r Reading) Unread(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, `
		SELECT slot_name::text FROM pg_replication_slots
		 WHERE database = current_database() AND plugin = $1 AND slot_name <> $2
		   AND NOT active AND NOT temporary AND NOT two_phase AND wal_status <> 'lost' AND confirmed_flush_lsn IS NOT NULL
		   AND (EXISTS (SELECT FROM pg_publication WHERE pubname = $3)
		        OR EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = ANY ($4))
		        OR EXISTS (SELECT FROM pg_publication_tables t
		                     JOIN pg_namespace n ON n.nspname = t.schemaname
		                     JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename WHERE c.oid = ANY ($4)))
		 ORDER BY 1`, Plugin, r.Slot, r.Publication, r.Tables)
	slots, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for slots that nobody reads: %w", err)
	}
	return slots, nil
}
