package checker_test

import (
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/checker"
)

// positionless is a good history whose records have no positions.
func positionless(seed uint64) checker.History {
	h := generate(seed)
	h.NoPositions, h.Samples = true, nil
	for i := range h.Records {
		h.Records[i].Headers = h.Records[i].Headers[:2]
	}
	return h
}

func TestNothingIsWrongWithAGoodHistoryWithoutPositions(t *testing.T) {
	for seed := range uint64(seeds) {
		if err := checker.Verify(positionless(seed)).Err(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestCorruptionsAreFoundWithoutPositions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		want    checker.Kind
		corrupt func(h *checker.History)
	}{
		{"lost", checker.Lost, func(h *checker.History) { remove(h, "0-1") }},
		{"swapped within a transaction", checker.Reordered, func(h *checker.History) { swap(h, "0-1", "0-2") }},
		{"commits swapped", checker.Reordered, func(h *checker.History) { h.Transactions[0].Began, h.Transactions[0].Ended = 1000, 1001 }},
		{"another partition", checker.Misrouted, func(h *checker.History) { find(h, "0-1").Partition++ }},
		{"ghost", checker.Ghost, func(h *checker.History) { h.Transactions[0].Outcome = checker.RolledBack }},
		{"a position", checker.Altered, func(h *checker.History) {
			r := find(h, "0-1")
			r.Headers = append(r.Headers, checker.Header{Key: "cdc-lsn", Value: "0/0"})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				h := positionless(seed)
				tt.corrupt(&h)
				report := checker.Verify(h)
				if !slices.ContainsFunc(report.Problems, func(p checker.Problem) bool { return p.Kind == tt.want }) {
					t.Fatalf("seed %d: no problem of kind %s in: %v", seed, tt.want, report.Err())
				}
			}
		})
	}
}
