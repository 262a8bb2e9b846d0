package consumer

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

// TestProgressMatchesAModel compares with looking at all records each time.
func TestProgressMatchesAModel(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		var p progress
		var all, open []*entry
		offset := int64(0)
		for range 200 {
			if random.IntN(3) == 0 || len(open) == 0 {
				var records []*kgo.Record
				for range 1 + random.IntN(5) {
					offset += 1 + random.Int64N(3) // offsets have holes
					records = append(records, &kgo.Record{Offset: offset, LeaderEpoch: int32(offset / 20), Value: make([]byte, random.IntN(9))})
				}
				entries := p.add(records)
				for i := range entries {
					all, open = append(all, &entries[i]), append(open, &entries[i])
				}
			} else {
				i := random.IntN(len(open))
				p.finish(open[i])
				open = append(open[:i], open[i+1:]...)
			}
			var want kgo.EpochOffset
			known, held, bytes := false, 0, 0
			for _, e := range all {
				if !e.done {
					bytes += e.size
				}
				if held > 0 || !e.done {
					held++
					continue
				}
				want, known = e.after, true
			}
			got, ok := p.uncommitted()
			if ok != (known && want != p.committed) || known && got != want || p.open.len() != held || p.bytes != bytes {
				t.Fatalf("seed %d: at %v (%v), %d held with %d bytes; want %v (%v), %d with %d",
					seed, got, ok, p.open.len(), p.bytes, want, known, held, bytes)
			}
			if ok && random.IntN(4) == 0 {
				p.committed = got
			}
		}
	}
}

func TestFIFOUsesItsMemoryAgain(t *testing.T) {
	var q fifo[int]
	next := 0
	for i := range 10_000 {
		q.push(i)
		if i >= 10 {
			if got := q.pop(); got != next {
				t.Fatalf("popped %d, want %d", got, next)
			}
			next++
		}
	}
	if q.len() != 10 || cap(q.items) > 64 {
		t.Errorf("%d items occupy %d", q.len(), cap(q.items))
	}
}

func TestBreakerLetsOneLaneProbe(t *testing.T) {
	b := breaker{waits: backoff.Range{First: time.Second, Longest: 4 * time.Second}}
	one, two := &lane{}, &lane{}
	now := time.Unix(0, 0)
	opens, wait := b.fails(one, now)
	if !opens || wait <= 0 {
		t.Fatalf("the first failure: opens %v, wait %v", opens, wait)
	}
	if opens, again := b.fails(two, now); opens || again != 0 {
		t.Error("a lane that started before reopens the breaker")
	}
	if b.allows(now) {
		t.Error("a lane may start before the wait is over")
	}
	now = now.Add(wait)
	if !b.allows(now) {
		t.Error("no lane may probe after the wait")
	}
	b.starts(one)
	if b.allows(now) {
		t.Error("two lanes may probe at once")
	}
	if b.passes(two) {
		t.Error("a lane that does not probe closes the breaker")
	}
	if opens, wait = b.fails(one, now); opens || wait < time.Second {
		t.Errorf("the probe's failure: opens %v, wait %v; want a longer wait", opens, wait)
	}
	b.starts(two)
	if !b.passes(two) || !b.allows(now) {
		t.Error("the probe's success does not close the breaker")
	}
}
