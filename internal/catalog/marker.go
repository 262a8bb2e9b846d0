package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// markerBits is how many transactions are in a marker: an unrelated server has
// the pattern with a chance of one in 2^64.
const markerBits = 64

// Marker is a random pattern of commits and rollbacks, in a server's transaction
// numbers. pg_upgrade takes the commit log (pg_xact) over, unlike the WAL, and so
// does each physical copy; a dump and logical replication do not. So the new
// server proves to descend from the old, as it was after the marker. No table and
// no privilege is needed.
type Marker struct {
	Committed  []uint64 `json:"committed"`   // transactions with epoch
	RolledBack []uint64 `json:"rolled_back"` // likewise
	// Horizon is the oldest running transaction: all transactions ending behind the
	// marker have the same or a later number.
	Horizon uint64 `json:"horizon"`
	// End is the end of the log behind the marker, on disk.
	End pg.LSN `json:"-"`
}

// IsZero reports whether there is none.
func (m Marker) IsZero() bool { return len(m.Committed)+len(m.RolledBack) == 0 }

// SetMarker writes a marker. The last transaction writes a message to the log, and
// so waits for the disk.
func SetMarker(ctx context.Context, conn *pgx.Conn) (m Marker, err error) {
	horizon, err := queryText(ctx, conn.PgConn(), `SELECT pg_snapshot_xmin(pg_current_snapshot())::text`)
	if err == nil {
		m.Horizon, err = strconv.ParseUint(horizon, 10, 64)
	}
	if err != nil {
		return Marker{}, fmt.Errorf("write a marker: %w", err)
	}
	for range markerBits {
		end, all := "COMMIT", &m.Committed
		if rand.N(2) == 0 {
			end, all = "ROLLBACK", &m.RolledBack
		}
		results, err := conn.PgConn().Exec(ctx, "BEGIN; SELECT pg_current_xact_id()::text; "+end).ReadAll()
		if err != nil {
			return Marker{}, fmt.Errorf("write a marker: %w", err)
		}
		xid, err := strconv.ParseUint(string(results[1].Rows[0][0]), 10, 64)
		if err != nil {
			return Marker{}, fmt.Errorf("write a marker: %w", err)
		}
		*all = append(*all, xid)
	}
	if _, err := conn.PgConn().Exec(ctx, `BEGIN; SET LOCAL synchronous_commit = on;
		SELECT pg_logical_emit_message(true, 'cdc-outbox upgrade', ''); COMMIT`).ReadAll(); err != nil {
		return Marker{}, fmt.Errorf("write a marker to the log: %w", err)
	}
	server, err := ReadServer(ctx, conn)
	m.End = server.FlushLSN
	return m, err
}

// Carried reports whether the server has the marker. A number still to come, and
// one too old to be known, have no state.
func (m Marker) Carried(ctx context.Context, conn *pgx.Conn) (carried bool, err error) {
	if m.IsZero() {
		return false, nil
	}
	err = conn.QueryRow(ctx, `
		SELECT bool_and(CASE WHEN xid >= pg_snapshot_xmax(pg_current_snapshot()) THEN false
		                     ELSE COALESCE(pg_xact_status(xid) = state, false) END)
		  FROM (SELECT x::xid8 AS xid, 'committed' AS state FROM unnest($1::text[]) x
		        UNION ALL SELECT x::xid8, 'aborted' FROM unnest($2::text[]) x) marker`,
		decimals(m.Committed), decimals(m.RolledBack)).Scan(&carried)
	if err != nil {
		return false, fmt.Errorf("look for the marker: %w", err)
	}
	return carried, nil
}

func decimals(numbers []uint64) []string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.FormatUint(n, 10)
	}
	return texts
}

// Rows is the SQL condition of the rows of transactions perhaps ended behind the
// marker, on a server with the marker; before, if not 0, is the 32 bits of the id of
// the first transaction to leave out. Of all transactions with the 32 bits of a row
// the last counts.
func (m Marker) Rows(before uint32) string {
	const next = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8)"
	age := func(xid string) string { return "((" + next + " - " + xid + ") & 4294967295)" }
	const row = "xmin::text::int8"
	where := fmt.Sprintf("%s > 2 AND %s - %s >= %d", row, next, age(row), m.Horizon)
	if before != 0 {
		where += " AND " + age(row) + " > " + age(strconv.FormatUint(uint64(before), 10))
	}
	return "(" + where + ")"
}

// RowsSince counts the visible rows of a table that fulfil Rows. A row deleted since
// is not counted.
func (m Marker) RowsSince(ctx context.Context, conn *pgx.Conn, table pg.Table, before uint32) (n int64, err error) {
	err = conn.QueryRow(ctx, `SELECT count(*) FROM `+table.Quoted()+` WHERE `+m.Rows(before)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the rows of %s written after the marker: %w", table, err)
	}
	return n, nil
}
