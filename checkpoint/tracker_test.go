package checkpoint

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

var update = flag.Bool("update", false, "rewrite the scenarios in testdata with what happens now")

// TestTrackerScenarios runs the scripts in testdata/tracker. A line is a call and, after
// the arrow, the tracker's answer; # starts a comment.
func TestTrackerScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/tracker/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			b := must.Get(os.ReadFile(path))(t)
			got := runScenario(t, string(b))
			if *update {
				must.OK(t, os.WriteFile(path, []byte(got), 0o644))
			} else if got != string(b) {
				t.Errorf("%s: got\n%s\nwant\n%s", path, got, b)
			}
		})
	}
}

func runScenario(t *testing.T, script string) string {
	var out strings.Builder
	tracker := NewTracker(0)
	for line := range strings.Lines(script) {
		call, _, _ := strings.Cut(strings.TrimSpace(line), "→")
		if call = strings.TrimSpace(call); call == "" || call[0] == '#' {
			out.WriteString(line)
			continue
		}
		fmt.Fprintf(&out, "%-10s → %s\n", call, runCall(t, tracker, call))
	}
	return out.String()
}

func runCall(t *testing.T, tracker *Tracker, call string) string {
	var lsn pg.LSN
	var k Ticket
	var n int
	result := ""
	switch verb, args, _ := strings.Cut(call, " "); verb {
	case "add":
		result = fmt.Sprintf("ticket %d, ", tracker.Add())
	case "seal", "idle":
		if _, err := fmt.Sscanf(args, "%d", &lsn); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		f := tracker.Keepalive
		if verb == "seal" {
			f = func(end pg.LSN) error { return tracker.Seal(end, Landmark{}) }
		}
		if err := f(lsn); err != nil {
			result = fmt.Sprintf("error: %v; ", err)
		}
	case "done":
		if _, err := fmt.Sscanf(args, "%d %d", &k, &n); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		tracker.Done(k, n)
	default:
		t.Fatalf("unknown call %q", call)
	}
	return fmt.Sprintf("%sposition %d, in flight %d", result, tracker.Position(), tracker.InFlight())
}

func TestTrackerMisuseIsALoss(t *testing.T) {
	tracker := NewTracker(100)
	tracker.Done(1, 1)
	if err := tracker.Seal(200, Landmark{Commit: 1}); failure.ClassOf(err) != failure.Loss || failure.RemedyOf(err) == "" {
		t.Errorf("Seal after misuse: %v, want a loss with a remedy", err)
	}
}

func TestTrackerMemoryIsOneEntryPerUnackedTransaction(t *testing.T) {
	tracker := NewTracker(0)
	oldest := tracker.Add()
	for range 100_000 {
		tracker.Add() // one huge transaction
	}
	for lsn := pg.LSN(1); lsn <= 10_000; lsn++ { // empty ones and idle positions behind it
		must.OK(t, tracker.Seal(2*lsn, Landmark{Commit: 1}))
		must.OK(t, tracker.Keepalive(2*lsn+1))
	}
	if got := len(tracker.ring); got != initialRing {
		t.Errorf("ring has %d entries, want %d", got, initialRing)
	}
	if tracker.Done(oldest, 100_001); tracker.Position() != 20_001 {
		t.Errorf("position %d, want 20001", tracker.Position())
	}
}

func TestLockedAcksFromManyGoroutines(t *testing.T) {
	const acks, transactions = 4, 2000
	l := NewLocked(0)
	tickets := make(chan Ticket, 64)
	var wg sync.WaitGroup
	for range acks {
		wg.Go(func() {
			var last pg.LSN
			for k := range tickets {
				l.Done(k, 1)
				pos := l.Position()
				if pos < last {
					t.Errorf("position went back from %s to %s", last, pos)
				}
				last = pos
			}
		})
	}
	for i := range pg.LSN(transactions) {
		tickets <- l.Add()
		tickets <- l.Add()
		if err := l.Seal(i+1, Landmark{Commit: 1}); err != nil {
			t.Error(err)
		}
	}
	close(tickets)
	wg.Wait()
	if err := l.Keepalive(transactions + 1); err != nil {
		t.Error(err)
	}
	if l.InFlight() != 0 || l.Position() != transactions+1 {
		t.Errorf("in flight %d, position %d; want 0, %d", l.InFlight(), l.Position(), transactions+1)
	}
}

func BenchmarkTracker(b *testing.B) {
	const window, rows = 256, 10 // unacked transactions, rows of each
	tracker := NewTracker(0)
	var tickets [window]Ticket
	b.ReportAllocs()
	for i := range b.N {
		if i >= window {
			tracker.Done(tickets[i%window], rows)
		}
		for range rows {
			tickets[i%window] = tracker.Add()
		}
		must.OK(b, tracker.Seal(pg.LSN(i), Landmark{Commit: 1}))
	}
}

func TestTrackerAllocatesNothingInSteadyState(t *testing.T) {
	tracker, lsn := NewTracker(0), pg.LSN(0)
	if n := testing.AllocsPerRun(1000, func() {
		lsn++
		k := tracker.Add()
		_ = tracker.Seal(lsn, Landmark{Commit: 1})
		tracker.Done(k, 1)
		_ = tracker.Keepalive(lsn)
	}); n != 0 {
		t.Errorf("%v allocations for a transaction, want 0", n)
	}
}
