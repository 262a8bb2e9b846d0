package admin

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestParseXIDs(t *testing.T) {
	for text, want := range map[string]XIDs{"3": {3, 3}, "750-4294967999": {750, 4294967999}, "750-": {750, 0}} {
		if got := must.Get(ParseXIDs(text))(t); got != want || got.String() != text {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, text := range []string{"", "2", "-", "-5", "5-2", "x", "5-x", "1.5", "5-6-7", "99999999999999999999"} {
		if got, err := ParseXIDs(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// A number of 32 bits is that of the last transaction with it, also when the numbers
// have begun anew; one that no row can tell is refused.
func TestXIDsAreMadeFull(t *testing.T) {
	const epoch = uint64(1) << 32
	for _, c := range []struct {
		asked XIDs
		next  uint64
		want  XIDs
		words string
	}{
		{XIDs{750, 751}, 800, XIDs{750, 751}, ""},
		{XIDs{750, 0}, 800, XIDs{750, 799}, ""},
		{XIDs{800, 800}, 800, XIDs{}, "has not begun"},
		{XIDs{900, 900}, 800, XIDs{}, "has not begun"},
		{XIDs{750, 750}, epoch + 800, XIDs{epoch + 750, epoch + 750}, ""},
		{XIDs{epoch - 10, 20}, epoch + 800, XIDs{epoch - 10, epoch + 20}, ""},
		{XIDs{epoch + 750, 3*epoch + 2}, 3*epoch + 10, XIDs{}, "too long ago"},
		{XIDs{20, epoch - 10}, epoch + 800, XIDs{}, "is not before"},
	} {
		got, err := c.asked.full(c.next)
		if c.words != "" {
			wantClass(t, err, failure.Config, c.words)
		} else if err != nil || got != c.want {
			t.Errorf("%v: %+v, %v, want %+v", c.asked, got, err, c.want)
		}
	}
}

// Rows are chosen by their transactions: by one, by several, by the form of the
// number that a session sees.
func TestRowsOfATransaction(t *testing.T) {
	p := newPublished(t)
	xids := make([]uint64, 3)
	for n := range xids {
		p.exec(`BEGIN`)
		must.OK(t, p.conn.QueryRow(p.ctx(), `SELECT pg_current_xact_id()::text::int8`).Scan(&xids[n]))
		p.write(2*n+1, 2*n+2)
		p.exec(`COMMIT`)
	}
	p.send("outbox.event.order", 1, 3)
	look := func(x XIDs) *RepairReport { return p.look(AuditOptions{XIDs: x}) }
	p.wantMissing(look(XIDs{xids[1], xids[1]}), 1, 4)
	p.wantMissing(look(XIDs{xids[0], xids[1]}), 2, 2, 4)
	r := look(XIDs{xids[2], 0})
	p.wantMissing(r, 0, 5, 6)
	must.Contain(t, strings.Join(r.Limits, "\n"), "SAVEPOINT")
	p.wantMissing(p.mend(AuditOptions{XIDs: XIDs{xids[2], xids[2]}}), 0, 5, 6)
	p.wantMissing(p.look(AuditOptions{}), 4, 2, 4)

	for x, words := range map[XIDs]string{{3, 3}: "no row is of transaction 3", {1 << 31, 1 << 31}: "has not begun"} {
		_, err := Repair(p.ctx(), p.Config, p.options(AuditOptions{XIDs: x}), false)
		wantClass(t, err, failure.Config, words)
	}
}

// The condition tells transactions apart whose numbers are the same, or smaller than
// those before them, behind the end of the 32 bits.
func TestXIDsOfRowsBehindTheEndOfTheirBits(t *testing.T) {
	p := newPublished(t)
	const epoch = uint64(1) << 32
	has := func(x XIDs, xmin, next uint64) (yes bool) {
		sql := strings.ReplaceAll(x.where(), "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8)", fmt.Sprint(next))
		sql = strings.ReplaceAll(sql, "xmin::text", fmt.Sprintf("'%d'", xmin))
		must.OK(t, p.conn.QueryRow(context.Background(), `SELECT `+sql).Scan(&yes))
		return yes
	}
	around := XIDs{epoch - 10, epoch + 20}
	for _, c := range []struct {
		xmin, next uint64
		want       bool
	}{{epoch - 10, epoch + 800, true}, {20, epoch + 800, true}, {21, epoch + 800, false}, {epoch - 11, epoch + 800, false},
		{2, epoch + 800, false}, {15, 2*epoch + 800, false}} {
		if got := has(around, c.xmin, c.next); got != c.want {
			t.Errorf("xmin %d, next %d: %v", c.xmin, c.next, got)
		}
	}
}
