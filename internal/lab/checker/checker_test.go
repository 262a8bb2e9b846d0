package checker_test

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const seeds = 30

func TestNothingIsWrongWithAGoodHistory(t *testing.T) {
	for seed := range uint64(seeds) {
		report := checker.Verify(generate(seed))
		if err := report.Err(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if report.Committed == 0 || report.Delivered < report.Committed || report.Repeated < 3 || report.Samples == 0 {
			t.Errorf("seed %d: %s", seed, report)
		}
	}
}

// corruption breaks a good history in a single place.
type corruption struct {
	name    string
	want    checker.Kind
	corrupt func(h *checker.History)
}

var corruptions = []corruption{
	{"event lost", checker.Lost, func(h *checker.History) { remove(h, "0-1") }},
	{"transaction lost", checker.Lost, func(h *checker.History) { remove(h, "0-0", "0-1", "0-2") }},
	{"part of an unknown transaction lost", checker.Torn, func(h *checker.History) {
		h.Transactions[0].Outcome = checker.Unknown
		remove(h, "0-2")
	}},
	{"rolled back event arrives", checker.Ghost, func(h *checker.History) { h.Transactions[0].Outcome = checker.RolledBack }},
	{"event of a rolled back savepoint arrives", checker.Ghost, func(h *checker.History) {
		h.Transactions[0].Events = h.Transactions[0].Events[:2]
	}},
	{"record without an id", checker.Ghost, func(h *checker.History) { find(h, "0-1").Headers = nil }},
	{"another topic", checker.Misrouted, func(h *checker.History) { find(h, "0-1").Topic = "elsewhere" }},
	{"another partition", checker.Misrouted, func(h *checker.History) { find(h, "0-1").Partition++ }},
	{"repetition in another partition", checker.Misrouted, func(h *checker.History) { again(h, "0-1").Partition++ }},
	{"another key", checker.Altered, func(h *checker.History) { find(h, "0-1").Key = "" }},
	{"payload cut short", checker.Altered, func(h *checker.History) { find(h, "0-1").Value = "payload of" }},
	{"repetition altered", checker.Altered, func(h *checker.History) { again(h, "0-1").Value += " " }},
	{"header altered", checker.Altered, func(h *checker.History) { find(h, "0-1").Headers[1].Value = "Guessed" }},
	{"headers in another order", checker.Altered, func(h *checker.History) {
		hs := find(h, "0-1").Headers
		hs[0], hs[1] = hs[1], hs[0]
	}},
	{"no position", checker.Altered, func(h *checker.History) { r := find(h, "0-1"); r.Headers = r.Headers[:2] }},
	{"position that is none", checker.Altered, func(h *checker.History) { find(h, "0-1").Headers[2].Value = "3E8" }},
	{"key's events swapped", checker.Reordered, func(h *checker.History) { swap(h, "0-1", "0-2") }},
	{"commits swapped", checker.Reordered, func(h *checker.History) {
		t := h.Transactions
		t[0].Began, t[0].Ended = 1000, 1001
	}},
	{"events of a transaction numbered backwards", checker.Misplaced, func(h *checker.History) {
		find(h, "0-0").Headers[3].Value = "9"
	}},
	{"transaction at two positions", checker.Misplaced, func(h *checker.History) { find(h, "0-1").Headers[2].Value = "0/3E9" }},
	{"two transactions at one position", checker.Misplaced, func(h *checker.History) {
		last := &h.Records[slices.IndexFunc(h.Records, func(r checker.Record) bool { return id(r)[:2] != "0-" })]
		last.Headers[2].Value = commitLSN(0).String()
	}},
	{"another transaction's number", checker.Misplaced, func(h *checker.History) { find(h, "0-1").Headers[4].Value = "1" }},
	{"repetition at another position", checker.Misplaced, func(h *checker.History) { again(h, "0-1").Headers[3].Value = "77" }},
	{"confirmed before it was written", checker.Premature, func(h *checker.History) {
		clear(h.Samples[0].Ends)
	}},
	{"confirmed with the topic one short", checker.Premature, func(h *checker.History) {
		r := find(h, "0-2")
		h.Samples[0].Ends[r.Topic][r.Partition] = r.Offset
	}},
}

func TestEveryCorruptionIsFound(t *testing.T) { wantFound(t, generate, corruptions) }

// wantFound asserts that each corruption of a good history is found.
func wantFound(t *testing.T, good func(seed uint64) checker.History, corruptions []corruption) {
	t.Helper()
	for _, tt := range corruptions {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			for seed := range uint64(seeds) {
				h := good(seed)
				tt.corrupt(&h)
				report := checker.Verify(h)
				if !slices.ContainsFunc(report.Problems, func(p checker.Problem) bool { return p.Kind == tt.want }) {
					t.Fatalf("seed %d: no problem of kind %s in: %v", seed, tt.want, report.Err())
				}
			}
		})
	}
}

func TestSlotAtTheBeginningOfACommitConfirmsNothingOfIt(t *testing.T) {
	h := generate(1)
	h.Samples = []checker.Sample{{Confirmed: commitLSN(0)}}
	if err := checker.Verify(h).Err(); err != nil {
		t.Error(err)
	}
}

func TestUnansweredCommitMayBeCarriedOutLate(t *testing.T) {
	h := generate(1)
	for i := range h.Transactions {
		tx := &h.Transactions[i]
		if tx.Began, tx.Ended = 0, 0; tx.Outcome == checker.Committed && i > 0 {
			tx.Outcome = checker.Unknown // before all others, as far as their writers know
		}
	}
	h.Transactions[0].Began, h.Transactions[0].Ended = 10, 11
	if err := checker.Verify(h).Err(); err != nil {
		t.Error(err)
	}
}

func TestErrNamesAFewOfManyAndCountsTheRest(t *testing.T) {
	h := generate(1)
	h.Records, h.Samples = nil, nil
	report := checker.Verify(h)
	text := report.Err().Error()
	if lines := strings.Count(text, "\n") + 1; lines != 6 || !strings.Contains(text, "more") {
		t.Errorf("%d problems in %d lines: %s", len(report.Problems), lines, text)
	}
	if report.Problems[0].Kind != checker.Lost || report.Delivered != 0 {
		t.Errorf("%s, first %v", report, report.Problems[0])
	}
}

func TestRepetitionsPairsEachWithTheOneBefore(t *testing.T) {
	h := generate(1)
	all := checker.Repetitions(h.Records)
	if len(all) != checker.Verify(h).Repeated {
		t.Fatalf("%d repetitions, want %d", len(all), checker.Verify(h).Repeated)
	}
	for _, rep := range all {
		if id(rep.Before) != rep.Event || id(rep.Again) != rep.Event || rep.Before.Offset >= rep.Again.Offset {
			t.Errorf("%v is repeated by %v", rep.Before, rep.Again)
		}
	}
}

func id(r checker.Record) string {
	for _, h := range r.Headers {
		if h.Key == "id" {
			return h.Value
		}
	}
	return "  "
}

// find returns the first record of an event, again the second.
func find(h *checker.History, event string) *checker.Record {
	return &h.Records[slices.IndexFunc(h.Records, func(r checker.Record) bool { return id(r) == event })]
}

func again(h *checker.History, event string) *checker.Record {
	first := find(h, event)
	for i := range h.Records {
		if r := &h.Records[i]; r != first && id(*r) == event {
			return r
		}
	}
	return nil
}

func remove(h *checker.History, events ...string) {
	h.Records = slices.DeleteFunc(h.Records, func(r checker.Record) bool { return slices.Contains(events, id(r)) })
	h.Samples = nil
}

// swap exchanges the places of two events in their log, at each occurrence.
func swap(h *checker.History, a, b string) {
	for _, pick := range []func(*checker.History, string) *checker.Record{find, again} {
		x, y := pick(h, a), pick(h, b)
		*x, *y = *y, *x
		x.Offset, y.Offset = y.Offset, x.Offset
	}
}
