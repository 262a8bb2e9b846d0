package retention

import "time"

const (
	// longestLook is the longest time between two looks at the tables: whether a
	// partition is missing or has expired, and how far everything is published.
	// Each look costs a few queries of the catalog, and keeps the connection in
	// use.
	longestLook = 10 * time.Second
	// passesPerAge is the number of passes through a table's rows while one
	// grows old.
	passesPerAge = 20
	// failedWait is the longest time until another try after a failure: an attempt
	// may have held up writers, for as long as a lock is waited for.
	failedWait = 5 * time.Minute
	// fullWait is the time between attempts at a partition whose rows are in
	// the default one: that is searched for them, and locked meanwhile.
	fullWait = time.Hour
)

// turn says when a table has the turn; the zero turn is due.
type turn struct {
	next time.Time // nothing is done before
	rows time.Time // nor are rows looked at before, the default partition's
	said string    // the failure logged last; empty after a success
}

// look is the time between two looks at the tables.
func (o *Parts) look() time.Duration { return min(o.Interval, longestLook) }

// sweep is the time between two passes through the rows of a table.
func (o *Parts) sweep() time.Duration { return max(o.Interval, o.After/passesPerAge) }

// dueRows reports whether the rows have their turn and, if so, gives them the
// next. They have none until something is known to be published.
func (r *retention) dueRows(t *turn, h horizon) bool {
	now := time.Now()
	if h.lsn == 0 || now.Before(t.rows) {
		return false
	}
	t.rows = now.Add(r.opts.sweep())
	return true
}

// failed postpones a table, and reports whether the failure differs from the
// last.
func (r *retention) failed(t *turn, err error) (news bool) {
	t.next = time.Now().Add(min(r.opts.sweep(), failedWait))
	t.rows = time.Time{}
	news = t.said != err.Error()
	t.said = err.Error()
	return news
}
