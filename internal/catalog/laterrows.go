package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Place is where a version of a row lies.
type Place struct {
	Table  uint32 // the OID of the table, or of the partition
	Block  uint32
	Offset uint16
}

// LaterRows are the rows of transactions from an id on, in a snapshot.
type LaterRows struct {
	// Where is the SQL condition of the rows. Of all transactions with the 32 bits
	// of a row the last counts, so that rows of long ago may be among them.
	Where string
	// Untimed tells that a row has no time; First is the first time of the others,
	// zero without any.
	Untimed bool
	First   time.Time
	// Before are the last rows of earlier transactions, the last first.
	Before []EarlierRow
}

// EarlierRow is a row of a transaction before those of LaterRows.
type EarlierRow struct {
	Place
	XID uint64    // of the transaction
	At  time.Time // zero: the row has no time
}

// ReadLaterRows reads which rows of a table are of transactions from xid on.
// timeColumn, if any, has their time; most bounds Before. snapshot is exported.
func ReadLaterRows(ctx context.Context, conn *pgx.Conn, snapshot string, xid uint64, table pg.Table, timeColumn string, most int) (rows LaterRows, err error) {
	next, err := NextXID(ctx, conn) // higher than those of the rows in the snapshot
	if err != nil {
		return rows, err
	}
	age := fmt.Sprintf("((%d - xmin::text::int8) & 4294967295)", next)
	rows.Where = fmt.Sprintf("%s <= %d", age, int64(next)-int64(xid))
	micros := noNumber
	if timeColumn != "" {
		micros = Micros(timeColumn)
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+pgsql.Literal(snapshot)); err != nil {
			return err
		}
		var first *int64
		from := " FROM " + table.Quoted() + " WHERE "
		if err := tx.QueryRow(ctx, "SELECT count(*) > count("+micros+"), min("+micros+")"+from+rows.Where).Scan(&rows.Untimed, &first); err != nil {
			return err
		}
		if first != nil {
			rows.First = time.UnixMicro(*first)
		}
		found, err := tx.Query(ctx, fmt.Sprintf("SELECT tableoid, (ctid::text::point)[0]::int8, (ctid::text::point)[1]::int4, %s, %s%sNOT (%s) ORDER BY 4 LIMIT %d",
			age, micros, from, rows.Where, most))
		if err != nil {
			return err
		}
		rows.Before, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (r EarlierRow, err error) {
			var block, ago int64
			var offset int32
			var at *int64
			err = row.Scan(&r.Table, &block, &offset, &ago, &at)
			r.Block, r.Offset, r.XID = uint32(block), uint16(offset), uint64(int64(next)-ago)
			if at != nil {
				r.At = time.UnixMicro(*at)
			}
			return r, err
		})
		return err
	})
	if err != nil {
		return rows, fmt.Errorf("look for the last rows of %s: %w", table, err)
	}
	return rows, nil
}
