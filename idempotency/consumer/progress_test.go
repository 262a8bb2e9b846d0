package consumer

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
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
