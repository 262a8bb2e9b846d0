package checker_test

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

// positionless is a good history of records without positions.
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
	wantFound(t, positionless, []corruption{
		{"lost", checker.Lost, func(h *checker.History) { remove(h, "0-1") }},
		{"swapped within a transaction", checker.Reordered, func(h *checker.History) { swap(h, "0-1", "0-2") }},
		{"commits swapped", checker.Reordered, func(h *checker.History) { h.Transactions[0].Began, h.Transactions[0].Ended = 1000, 1001 }},
		{"another partition", checker.Misrouted, func(h *checker.History) { find(h, "0-1").Partition++ }},
		{"ghost", checker.Ghost, func(h *checker.History) { h.Transactions[0].Outcome = checker.RolledBack }},
		{"a position", checker.Altered, func(h *checker.History) {
			r := find(h, "0-1")
			r.Headers = append(r.Headers, checker.Header{Key: "cdc-lsn", Value: "0/0"})
		}},
	})
}
