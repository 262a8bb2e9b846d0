package repair

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// mostEvidence is how many of the last published rows of a table are compared.
const mostEvidence = 100

// choose returns the SQL conditions of the compared rows, by table: of transactions from
// of.Before on, and the last before, the evidence. Records before since, zero for none,
// cannot be of them.
func (c *comparison) choose(ctx context.Context) (where []string, since time.Time, err error) {
	where = make([]string, len(c.tables))
	if c.of.Before == 0 {
		return where, since, nil
	}
	untimed := false
	reach := func(at time.Time) {
		if !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	for i, t := range c.tables {
		rows, err := catalog.ReadLaterRows(ctx, c.rows.Conn, c.of.Snapshot, c.of.Before, t.Name, t.Time, mostEvidence)
		if err != nil {
			return nil, since, err
		}
		untimed = untimed || rows.Untimed
		reach(rows.First)
		where[i] = rows.Where
		places := make([]audit.Place, len(rows.Before))
		for i, row := range rows.Before {
			places[i] = audit.Place(row.Place)
			c.evidence[places[i]] = row.XID
			reach(row.At)
		}
		if len(places) > 0 {
			where[i] += " OR " + audit.Places(places)
		}
	}
	if untimed {
		since = time.Time{}
	}
	return where, since, nil
}
