package checkpoint

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// entry is a piece of a log: a transaction, a message of no transaction, or nothing of ours.
type entry struct {
	rows []pg.Row // of a transaction, with events of ours only
	end  pg.LSN
	// A transaction is sent by a stream from the commit or before, a message by a
	// stream from before.
	commit pg.LSN
	alone  bool
}

// readLog is a random log behind a position. The ids of the transactions begin
// with xid.
func readLog(rng *rand.Rand, from pg.LSN, xid uint32, n int) (log []entry) {
	for range n {
		from += pg.LSN(1 + rng.IntN(3))
		e := entry{commit: from, end: from + 1}
		switch rng.IntN(5) {
		case 0: // nothing of ours
		case 1:
			e.alone, e.end = true, from
		default:
			row := pg.Row{XID: xid, Position: pg.Position{CommitLSN: from}}
			for range 1 + rng.IntN(4) {
				row.Position.Seq += uint32(1 + rng.IntN(2)) // others are other tables'
				e.rows = append(e.rows, row)
			}
		}
		xid++
		log, from = append(log, e), e.end
	}
	return log
}

// event is an event of a log, with all its properties.
type event struct {
	xid uint32 // 0: a message of no transaction
	at  pg.Position
}

func (e *entry) events() (all []event) {
	if e.alone {
		return []event{{at: pg.Position{CommitLSN: e.commit}}}
	}
	for _, row := range e.rows {
		all = append(all, event{row.XID, row.Position})
	}
	return all
}

// reader is a process reading a log in sessions, beside the dumb model of its Reading: the
// set of events taken in.
type reader struct {
	reading Reading
	taken   map[event]bool
	order   []event
	passed  []event // of transactions: said to be read before, in this session, and not taken in
}

// session streams from a position on, for so many steps, and returns the error at its end.
func (r *reader) session(log []entry, past Past, steps int) error {
	r.passed = nil
	if err := r.reading.Resume(past); err != nil {
		return err
	}
	for i := range log {
		e := &log[i]
		switch {
		case e.commit < past.Start || e.alone && e.commit == past.Start:
			continue
		case steps == 0:
			return nil
		case e.alone:
			steps--
			again, err := r.reading.Alone(e.commit)
			if err != nil {
				return err
			}
			if r.note(again, e.events()[0]); !again {
				r.reading.TookAlone(e.commit)
			}
			continue
		}
		for j := range e.rows {
			if steps == 0 {
				return nil
			}
			steps--
			again, err := r.reading.Row(&e.rows[j])
			if err != nil {
				return err
			}
			if r.note(again, event{e.rows[j].XID, e.rows[j].Position}); !again {
				r.reading.Took(&e.rows[j])
			}
		}
		if steps == 0 {
			return nil
		}
		steps--
		end := func() (err error) { _, _, err = r.reading.Commit(e.end); return err }
		if len(e.rows) == 0 {
			end = func() (err error) { _, err = r.reading.Idle(e.end); return err }
		}
		if err := end(); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) note(again bool, e event) {
	switch {
	case !again:
		r.order = append(r.order, e)
		r.taken[e] = true
	case !r.taken[e] && e.xid != 0: // nothing tells two messages of no transaction apart
		r.passed = append(r.passed, e)
	}
}

// saved is the checkpoint of a log with a number of the events published.
func saved(log []entry, published int) (past Past, taken []event) {
	past = Past{Known: 1, Since: Landmark{Commit: 1}}
	for i := range log {
		e := &log[i]
		events := e.events()
		if rest := published - len(taken); rest < len(events) {
			if rest > 0 {
				past.Cut = Cut{LandmarkOf(&e.rows[rest-1]), e.rows[rest-1].Position.Seq}
			}
			return past, append(taken, events[:rest]...)
		}
		taken = append(taken, events...)
		past.Known = e.end
		if len(e.rows) > 0 {
			past.Since = LandmarkOf(&e.rows[0])
		}
	}
	return past, taken
}

// TestReadingIsASetOfPositions reads random logs in random sessions: the
// connection breaks anywhere, the process ends and goes on from a checkpoint, and now and
// then the log is another from some place on. Each event of an unchanged log is taken in
// exactly once and in order. Of another log, no event of a transaction is passed over
// unread, unless the session ends with a loss.
func TestReadingIsASetOfPositions(t *testing.T) {
	const histories = 20_000
	counts := map[string]int{}
	for seed := range uint64(histories) {
		what := readHistory(t, rand.New(rand.NewPCG(seed, 3)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		counts[what]++
	}
	t.Logf("%v", counts)
	for _, what := range []string{"the same log", "another log, lost", "another log, fits"} {
		if counts[what] < histories/50 {
			t.Errorf("%q is too seldom to prove anything", what)
		}
	}
}

func readHistory(t *testing.T, rng *rand.Rand) (what string) {
	t.Helper()
	log := readLog(rng, 1, 1, 1+rng.IntN(8))
	r := &reader{taken: map[event]bool{}}
	published := 0 // events
	for range rng.IntN(5) {
		past, taken := saved(log, published)
		if rng.IntN(3) == 0 { // another process goes on
			*r = reader{taken: map[event]bool{}, order: taken}
			for _, e := range taken {
				r.taken[e] = true
			}
		}
		past = begins(rng, past, &r.reading)
		if err := r.session(log, past, rng.IntN(20)); err != nil {
			t.Errorf("the log is the same, and Reading says: %v", err)
			return ""
		}
		if len(r.passed) > 0 {
			t.Errorf("passed over %v of the log that is the same", r.passed)
		}
		published += rng.IntN(len(r.order) - published + 1)
	}
	past, _ := saved(log, published)
	if rng.IntN(2) == 0 {
		return readAnother(t, rng, r, log, past)
	}
	if err := r.session(log, begins(rng, past, &r.reading), -1); err != nil {
		t.Errorf("the log is the same, and Reading says: %v", err)
	}
	var all []event
	for i := range log {
		all = append(all, log[i].events()...)
	}
	if !slices.Equal(r.order, all) || r.reading.End() != log[len(log)-1].end {
		t.Errorf("took in %v up to %s, want %v up to %s", r.order, r.reading.End(), all, log[len(log)-1].end)
	}
	return "the same log"
}

// begins chooses where a stream begins: as the source does, or earlier, where the slot stands.
func begins(rng *rand.Rand, past Past, r *Reading) Past {
	past.Slot = 1 + pg.LSN(rng.IntN(int(past.Known)))
	past.Start = max(past.Slot, past.Since.Commit, r.Landmark().Commit)
	return past
}

// readAnother goes on with another log from some place on.
func readAnother(t *testing.T, rng *rand.Rand, r *reader, log []entry, past Past) (what string) {
	t.Helper()
	n := rng.IntN(len(log) + 1)
	from := pg.LSN(1)
	if n > 0 {
		from = log[n-1].end
	}
	other := append(slices.Clip(log[:n]), readLog(rng, from-1, 100, rng.IntN(8))...)
	past = begins(rng, past, &r.reading)
	err := r.session(other, past, -1)
	switch {
	case err != nil && failure.ClassOf(err) != failure.Loss:
		t.Errorf("Reading says %v, want a loss", err)
	case err != nil:
		return "another log, lost"
	case r.reading.Recognised() && len(r.passed) > 0:
		t.Errorf("passed over %v of another log, which nobody has read\nlog   %v\nother %v\npast %+v", r.passed, log, other, past)
	}
	return "another log, fits"
}
