package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// XIDs are the numbers of the transactions of rows, both included. A number is that
// of cdc-xid, of 32 bits, or that of pg_current_xact_id, of 64. The zero XIDs are
// all transactions; a zero To is the last one.
type XIDs struct{ From, To uint64 }

// ParseXIDs reads N, N-M or N-.
func ParseXIDs(text string) (x XIDs, err error) {
	from, to, several := strings.Cut(text, "-")
	if x.From, err = strconv.ParseUint(from, 10, 63); err == nil {
		switch {
		case !several:
			x.To = x.From
		case to != "":
			x.To, err = strconv.ParseUint(to, 10, 63)
		}
	}
	if err != nil || x.From < firstXID || several && to != "" && x.To < firstXID {
		return x, errors.New("write the number of a transaction, as in the header cdc-xid, or two with - between")
	}
	return x, nil
}

// String is what ParseXIDs reads.
func (x XIDs) String() string {
	switch {
	case x == XIDs{}:
		return ""
	case x.To == 0:
		return fmt.Sprintf("%d-", x.From)
	case x.To == x.From:
		return fmt.Sprint(x.From)
	}
	return fmt.Sprintf("%d-%d", x.From, x.To)
}

const (
	// firstXID is the first that a transaction may have.
	firstXID = 3
	// xidsOfRows is how many different numbers rows can have: 32 bits.
	xidsOfRows = 1 << 32
)

// full returns the numbers of 64 bits. next is that of the next transaction.
func (x XIDs) full(next uint64) (XIDs, error) {
	if x.To == 0 {
		x.To = next - 1
	}
	for _, n := range []*uint64{&x.From, &x.To} {
		given := *n
		if *n < xidsOfRows { // the last transaction with it
			*n = next - (next-*n)%xidsOfRows
		}
		switch {
		case *n >= next: // also below zero
			return x, failure.Configf("take the number from the header cdc-xid", "transaction %d has not begun: the next is %d", given, next)
		case next-*n >= xidsOfRows:
			return x, failure.Configf("choose rows by --since and --until", "transaction %d is too long ago: rows have the last 32 bits of the number, which another transaction has since", given)
		}
	}
	if x.From > x.To {
		return x, failure.Configf("give numbers of 64 bits, as pg_current_xact_id returns them", "transaction %d is not before %d", x.From, x.To)
	}
	return x, nil
}

// where is the SQL condition of the rows, x being full.
func (x XIDs) where() string {
	const next = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8)"
	return fmt.Sprintf("(xmin::text::int8 >= %d AND %[2]s - ((%[2]s - xmin::text::int8) & %d) BETWEEN %d AND %d)", firstXID, next, uint64(xidsOfRows-1), x.From, x.To)
}

// fixXIDs makes the numbers asked for full, and says what they hide.
func (a *auditor) fixXIDs(ctx context.Context) error {
	if a.opts.XIDs == (XIDs{}) {
		return nil
	}
	if a.polls() {
		return failure.Configf("choose rows by --since and --until, --id or --key", "--xid: the mark of a poll gives a row another transaction")
	}
	next, err := catalog.NextXID(ctx, a.conn)
	if err != nil {
		return err
	}
	if a.xids, err = a.opts.XIDs.full(next); err != nil {
		return err
	}
	a.result.Limits = append(a.result.Limits, "a row written behind a SAVEPOINT, or in a block of PL/pgSQL with EXCEPTION, has the number of the subtransaction, and an updated row that of the update")
	if next > xidsOfRows {
		a.result.Limits = append(a.result.Limits, "the numbers of transactions have begun anew: old rows with the same 32 bits are among the rows, unless --since leaves them out")
	}
	return nil
}
