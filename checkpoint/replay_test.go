package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// tx is a transaction of ours with the commit record at lsn, told from others by the id.
func tx(lsn pg.LSN, xid uint32) Landmark {
	return Landmark{Commit: lsn, XID: xid, Time: time.UnixMicro(int64(xid))}
}

func TestReplay(t *testing.T) {
	at := func(lsn pg.LSN) Landmark { return Landmark{Commit: lsn} } // a mere position
	for name, c := range map[string]struct {
		start, known pg.LSN
		since, cut   Landmark
		log          []any // a Landmark for a transaction with events, a pg.LSN for a position reached
		done         bool
		loss         string // in the error; "" for none
	}{
		"nothing to repeat": {
			start: 50, known: 50, since: tx(40, 4), log: []any{pg.LSN(50)}, done: true},
		"the same log, from before the landmark": {
			start: 10, known: 50, since: tx(40, 4), log: []any{tx(20, 2), tx(40, 4), tx(40, 4), pg.LSN(50)}, done: true},
		"the same log, not yet repeated": {
			start: 10, known: 50, since: tx(40, 4), log: []any{tx(20, 2), pg.LSN(25), tx(40, 4), pg.LSN(45)}},
		"the same log with new events": {
			start: 10, known: 50, since: tx(40, 4), log: []any{tx(40, 4), tx(60, 6), pg.LSN(65)}, done: true},
		"a new event right at the end of what is known": {
			start: 50, known: 50, since: tx(40, 4), log: []any{tx(50, 5), pg.LSN(55)}, done: true},
		"the landmark is another transaction": {
			start: 10, known: 50, since: tx(40, 4), log: []any{tx(40, 5)}, loss: "not transaction 4 at 0/28"},
		"the landmark committed at another time": {
			start: 10, known: 50, since: tx(40, 4), log: []any{Landmark{Commit: 40, XID: 4, Time: time.UnixMicro(9)}}, loss: "not transaction 4"},
		"the landmark is missing before another event": {
			start: 10, known: 50, since: tx(40, 4), log: []any{tx(20, 2), tx(45, 5)}, loss: "not transaction 4"},
		"the landmark is missing before a new event": {
			start: 10, known: 50, since: tx(40, 4), log: []any{tx(60, 6)}, loss: "not transaction 4"},
		"the landmark is missing in an idle log": {
			start: 10, known: 50, since: tx(40, 4), log: []any{pg.LSN(40), pg.LSN(41)}, loss: "no transaction 4"},
		"an event where none was, behind the landmark": {
			start: 10, known: 50, since: tx(40, 4), log: []any{tx(40, 4), tx(45, 5)}, loss: "where none"},
		"an event where none was, with the landmark before the slot": {
			start: 42, known: 50, since: tx(40, 4), log: []any{tx(45, 5)}, loss: "where none"},
		"an event where none was, with no transaction known": {
			start: 10, known: 50, since: at(10), log: []any{tx(10, 5)}, loss: "where none"},
		"events from before a first position": {
			start: 10, known: 50, since: at(30), log: []any{tx(20, 2), pg.LSN(50)}, done: true},
		"nothing is known but the position": {
			start: 50, known: 50, log: []any{tx(50, 5), pg.LSN(55)}, done: true},
		"the cut transaction again": {
			start: 50, known: 50, since: tx(40, 4), cut: tx(60, 6), log: []any{pg.LSN(60), tx(60, 6), pg.LSN(65)}, done: true},
		"both again": {
			start: 10, known: 50, since: tx(40, 4), cut: tx(60, 6), log: []any{tx(40, 4), pg.LSN(50), tx(60, 6), pg.LSN(65)}, done: true},
		"the cut transaction is another one": {
			start: 50, known: 50, since: tx(40, 4), cut: tx(60, 6), log: []any{tx(60, 7)}, loss: "not transaction 6"},
		"the cut transaction is missing before a new event": {
			start: 50, known: 50, since: tx(40, 4), cut: tx(60, 6), log: []any{tx(70, 7)}, loss: "not transaction 6"},
		"the cut transaction is missing in an idle log": {
			start: 50, known: 50, since: tx(40, 4), cut: tx(60, 6), log: []any{pg.LSN(61)}, loss: "no transaction 6"},
		"an event before the cut transaction": {
			start: 50, known: 50, since: tx(40, 4), cut: tx(60, 6), log: []any{tx(55, 5)}, loss: "where none"},
		"the cut transaction is before the slot by now": {
			start: 70, known: 70, since: tx(40, 4), cut: tx(60, 6), log: []any{tx(75, 7), pg.LSN(80)}, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReplay(Past{Start: c.start, Known: c.known, Since: c.since, Cut: Cut{Landmark: c.cut}})
			done, err := follow(r, c.log)
			if (err != nil) != (c.loss != "") || done != c.done {
				t.Fatalf("done %v, error %v; want %v, %q", done, err, c.done, c.loss)
			}
			if err == nil {
				return
			}
			if failure.ClassOf(err) != failure.Loss || failure.RemedyOf(err) == "" || !strings.Contains(err.Error(), c.loss) {
				t.Errorf("error %v (class %d), want a loss with a remedy that says %q", err, failure.ClassOf(err), c.loss)
			}
		})
	}
}

func follow(r *Replay, log []any) (done bool, err error) {
	for _, step := range log {
		switch step := step.(type) {
		case Landmark:
			err = r.Transaction(step)
		case pg.LSN:
			done, err = r.Reached(step)
		}
		if err != nil {
			return false, err
		}
	}
	return done, nil
}

// Two logs are the same up to a random place. A log is read, up to a random
// place; the other is replayed from a random position of a slot. Whenever an
// unread event would be passed over, the replay ends in a loss; never with the same logs.
func TestReplayPassesOverNothingUnread(t *testing.T) {
	const histories = 20_000
	var losses, same int
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 2))
		common := randomLog(rng, 1, 1, rng.IntN(6))
		from := pg.LSN(1)
		if n := len(common); n > 0 {
			from = common[n-1].Commit + 1
		}
		ours := slices.Concat(common, randomLog(rng, from, 100, rng.IntN(4)))
		theirs := slices.Concat(common, randomLog(rng, from, 200, rng.IntN(6)))
		if rng.IntN(3) == 0 {
			theirs = slices.Concat(ours, randomLog(rng, end(ours), 300, rng.IntN(3)))
		}
		what, err := replayed(rng, common, ours, theirs)
		if err != nil {
			t.Fatalf("seed %d: %v\nours %v\ntheirs %v", seed, err, ours, theirs)
		}
		switch what {
		case "loss":
			losses++
		case "same":
			same++
		}
	}
	t.Logf("%d losses, %d replays of the same log", losses, same)
	if losses < histories/20 || same < histories/20 {
		t.Error("too few of one kind to prove anything")
	}
}

// randomLog returns n transactions from an LSN on, each with the end right behind the
// commit record. Two logs may have transactions at the same places.
func randomLog(rng *rand.Rand, from pg.LSN, xid uint32, n int) (log []Landmark) {
	for range n {
		from += pg.LSN(rng.IntN(3))
		log = append(log, tx(from, xid))
		from, xid = from+1, xid+1
	}
	return log
}

func end(log []Landmark) pg.LSN {
	if len(log) == 0 {
		return 1
	}
	return log[len(log)-1].Commit + 1
}

func replayed(rng *rand.Rand, common, ours, theirs []Landmark) (string, error) {
	read := rng.IntN(len(ours) + 1) // transactions read whole
	known := end(ours[:read])
	since, cut := Landmark{Commit: 1}, Landmark{}
	if read > 0 {
		since = ours[read-1]
	}
	if read < len(ours) {
		known += pg.LSN(rng.IntN(int(ours[read].Commit-known) + 1)) // an idle position
		if rng.IntN(2) == 0 {
			cut = ours[read]
		}
	}
	// The slot stands somewhere in the common part of both logs, or at the position
	// known to be confirmed: the other log's slot is our slot at an earlier time.
	start := 1 + pg.LSN(rng.IntN(int(min(known, end(common)))))
	r := NewReplay(Past{Start: start, Known: known, Since: since, Cut: Cut{Landmark: cut}})
	seen := map[Landmark]bool{cut: true}
	for _, l := range ours[:read] {
		seen[l] = true
	}
	for _, l := range theirs {
		if l.Commit < start {
			continue
		}
		if _, err := r.Reached(l.Commit); err != nil {
			return verdict(err, known, ours[:read], cut, theirs)
		}
		if err := r.Transaction(l); err != nil {
			return verdict(err, known, ours[:read], cut, theirs)
		}
		passed := l.Commit < known || l.Commit == cut.Commit && !cut.IsZero()
		if passed && !seen[l] && l.Commit >= since.Commit {
			return "", fmt.Errorf("transaction %v was passed over", l)
		}
		if done, err := r.Reached(l.Commit + 1); err != nil {
			return verdict(err, known, ours[:read], cut, theirs)
		} else if done {
			for _, l := range theirs { // everything passed over before the landmark
				if l.Commit >= start && l.Commit < known && !seen[l] {
					return "", fmt.Errorf("transaction %v was passed over", l)
				}
			}
			return "same", nil
		}
	}
	return "open", nil // not said yet
}

// verdict checks that no loss is reported of a log with the same transactions
// up to where ours was read.
func verdict(err error, known pg.LSN, read []Landmark, cut Landmark, theirs []Landmark) (string, error) {
	if !cut.IsZero() {
		read = slices.Concat(read, []Landmark{cut})
		known = cut.Commit + 1
	}
	n := 0
	for n < len(theirs) && theirs[n].Commit < known {
		n++
	}
	if slices.Equal(theirs[:n], read) {
		return "", fmt.Errorf("loss of the same log: %w", err)
	}
	return "loss", nil
}
