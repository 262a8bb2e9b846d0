package kafkalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// fakeLog is a partition with gaps; a read returns a few records.
type fakeLog struct {
	end     int64
	records []*kgo.Record
	rng     *rand.Rand
}

func (l *fakeLog) Bounds() (start, end int64) { return 0, l.end }

func (l *fakeLog) Read(_ context.Context, from int64) (records []*kgo.Record, next int64, err error) {
	limit := 1 + l.rng.IntN(50)
	for _, r := range l.records {
		if r.Offset >= from && len(records) < limit {
			records = append(records, r)
			next = r.Offset + 1
		}
	}
	if len(records) == 0 {
		next = from
		if l.rng.IntN(2) == 0 {
			next = l.end // a marker or an emptied batch at the end
		}
	}
	return records, next, nil
}

func TestNewestFindsTheLastRecordThroughGaps(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l := &fakeLog{end: int64(rng.IntN(5000)), rng: rng}
		keys := 1 + rng.IntN(3)
		density := rng.Float64()
		last := map[string]int64{}
		for off := range l.end {
			if rng.Float64() > density {
				continue
			}
			key := fmt.Sprint(rng.IntN(keys))
			if key == "2" && off > l.end/10 {
				key = "0" // idle since
			}
			l.records = append(l.records, &kgo.Record{Offset: off, Key: []byte(key)})
			last[key] = off
		}
		for _, key := range []string{"0", "1", "2", "never"} {
			found := must.Get(Newest(t.Context(), l, func(r *kgo.Record) bool { return string(r.Key) == key }))(t)
			want, ok := last[key]
			if !ok && len(found) == 0 {
				continue
			}
			if len(found) == 0 || !ok || found[len(found)-1].Offset != want {
				t.Fatalf("seed %d, key %s: found %d records, want the one at %d", seed, key, len(found), want)
			}
			for i, r := range found[1:] {
				if r.Offset <= found[i].Offset {
					t.Fatalf("seed %d, key %s: offset %d after %d", seed, key, r.Offset, found[i].Offset)
				}
			}
		}
	}
}

func TestNewestFindsTheOnlyRecordAtAnyOffset(t *testing.T) {
	const end = firstWindow*windowGrowth + 3*firstWindow
	for off := range int64(end) {
		l := &fakeLog{
			end:     end,
			records: []*kgo.Record{{Offset: off, Key: []byte("a")}},
			rng:     rand.New(rand.NewPCG(uint64(off), 3)),
		}
		found, err := Newest(t.Context(), l, func(*kgo.Record) bool { return true })
		if err != nil || len(found) != 1 {
			t.Fatalf("record at offset %d: found %d, %v", off, len(found), err)
		}
	}
}
