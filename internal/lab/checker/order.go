package checker

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// complete finds missing events.
func (r *Report) complete(txs []Transaction, first map[string]delivery) {
	for _, tx := range txs {
		var missing []string
		for _, ev := range tx.Events {
			if _, ok := first[ev.ID]; !ok {
				missing = append(missing, ev.ID)
			}
		}
		switch {
		case len(missing) == 0 || tx.Outcome == RolledBack:
		case tx.Outcome == Committed:
			for _, id := range missing {
				r.problem(Lost, "event %s of transaction %d", id, tx.XID)
			}
		case len(missing) < len(tx.Events):
			r.problem(Torn, "transaction %d of unknown outcome: %d of %d events are missing: %s",
				tx.XID, len(missing), len(tx.Events), strings.Join(missing, " "))
		}
	}
}

// positions finds transactions whose records disagree about their position, and
// positions of two transactions.
func (r *Report) positions(txs []Transaction, first map[string]delivery) {
	owner := map[pg.LSN]int{}
	for t, tx := range txs {
		var last *delivery
		for _, ev := range tx.Events {
			d, ok := first[ev.ID]
			if !ok {
				continue
			}
			if tx.XID != 0 && d.xid != uint64(tx.XID) {
				r.problem(Misplaced, "event %s is at %s, but was inserted by transaction %d", ev.ID, d.place(), tx.XID)
			}
			if other, taken := owner[d.position.CommitLSN]; taken && other != t {
				r.problem(Misplaced, "event %s is at %s, as transaction %d is", ev.ID, d.place(), txs[other].XID)
			}
			owner[d.position.CommitLSN] = t
			if last != nil && last.position.CommitLSN != d.position.CommitLSN {
				r.problem(Misplaced, "event %s is at %s, %s of the same transaction at %s", ev.ID, d.place(), last.ID, last.place())
			}
			if last != nil && last.position.Seq >= d.position.Seq {
				r.problem(Misplaced, "event %s is at %s, but was inserted after %s, at %s", ev.ID, d.place(), last.ID, last.place())
			}
			last = &d
		}
	}
}

// order checks each key's records and the order of commits.
func (r *Report) order(first map[string]delivery, txs []Transaction) {
	type key struct{ topic, key string }
	keys := map[key][]delivery{}
	for _, d := range first {
		k := key{d.Record.Topic, d.Record.Key}
		keys[k] = append(keys[k], d)
	}
	if !r.noPositions {
		all := slices.Collect(maps.Values(first))
		slices.SortFunc(all, func(a, b delivery) int { return a.position.Compare(b.position) })
		r.asCommitted(all, txs, "positioned")
	}

	for _, ds := range keys {
		slices.SortFunc(ds, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
		for i := 1; i < len(ds); i++ {
			before, d := &ds[i-1], &ds[i]
			if before.Partition != d.Partition {
				r.problem(Misrouted, "%s: key %.100q was in partition %d before", d.where(), d.Record.Key, before.Partition)
			}
			if !r.noPositions && before.position.Compare(d.position) >= 0 {
				r.problem(Reordered, "%s: event %s at %s was delivered after %s at %s", d.where(), d.ID, d.place(), before.ID, before.place())
			}
		}
		r.asCommitted(ds, txs, "delivered")
		r.asInserted(ds)
	}
}

// asInserted checks that a transaction's events are in the order of the
// inserts.
func (r *Report) asInserted(ds []delivery) {
	last := map[int]*delivery{} // by transaction
	for i := range ds {
		d := &ds[i]
		if before := last[d.tx]; before != nil && before.index > d.index {
			r.problem(Reordered, "%s: event %s was delivered after %s, but inserted before it", d.where(), d.ID, before.ID)
		}
		last[d.tx] = d
	}
}

// asCommitted checks that no delivery of the sequence comes after a delivery
// with a COMMIT sent only after the former's answer. A commit never answered may
// have been carried out at any time.
func (r *Report) asCommitted(ds []delivery, txs []Transaction, how string) {
	var latest *delivery // the delivery with the greatest Began so far
	for i := range ds {
		d := &ds[i]
		if latest != nil && txs[d.tx].Outcome == Committed && txs[d.tx].Ended < txs[latest.tx].Began {
			r.problem(Reordered, "%s: event %s was %s after %s, but committed before it", d.where(), d.ID, how, latest.ID)
		}
		if latest == nil || txs[d.tx].Began > txs[latest.tx].Began {
			latest = d
		}
	}
}
