package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// A fence must grow beyond a forgotten record, a clock standing still, and a
// clock set back.
func TestFences(t *testing.T) {
	req := storage.ClaimRequest{Owner: "a", Lease: time.Second, Retention: time.Second}
	for name, test := range map[string]struct {
		last int64
		now  time.Time
		want int64
	}{
		"new":                     {0, noon, noon.UnixMicro()},
		"later":                   {noon.UnixMicro(), noon.Add(time.Second), noon.Add(time.Second).UnixMicro()},
		"at the same moment":      {noon.UnixMicro(), noon, noon.UnixMicro() + 1},
		"the clock was set back":  {noon.UnixMicro(), noon.Add(-time.Hour), noon.UnixMicro() + 1},
		"in the same microsecond": {noon.UnixMicro(), noon.Add(999), noon.UnixMicro() + 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, err := storage.Record{Fence: test.last}.Claim(test.now, req)
			if err != nil || c.Lease.Fence != test.want {
				t.Errorf("%d, %v, want %d", c.Lease.Fence, err, test.want)
			}
		})
	}
}

func TestStatesHaveNames(t *testing.T) {
	for state := storage.Absent; state <= storage.Failed; state++ {
		var got storage.State
		if err := got.UnmarshalText([]byte(state.String())); err != nil || got != state {
			t.Errorf("%s: %s, %v", state, got, err)
		}
	}
	for _, name := range []string{"", "unknown", "Completed", "INPROGRESS"} {
		state := storage.Failed
		if err := state.UnmarshalText([]byte(name)); err == nil || !strings.Contains(err.Error(), `"`+name+`"`) || state != storage.Failed {
			t.Errorf("%q: %s, %v", name, state, err)
		}
	}
}

func TestATransitionLeavesTheRecordItCameFrom(t *testing.T) {
	before := storage.Record{
		Key: storage.Key{Scope: "test", ID: "1"}, State: storage.Completed, Owner: "a", Fence: 1,
		Result: []byte("result"), ExpiresAt: noon.Add(time.Hour),
	}
	_, c, err := before.Claim(noon, storage.ClaimRequest{Owner: "b", Lease: time.Second, Retention: time.Second})
	if err != nil || c.Outcome != storage.Duplicate {
		t.Fatal(c, err)
	}
	clear(c.Result)
	if string(before.Result) != "result" {
		t.Error("the result is shared")
	}
	if r := before.At(before.ExpiresAt); r.State != storage.Absent || r.Fence != 1 || r.Key != before.Key || r.Owner != "" {
		t.Errorf("%+v", r)
	}
}

func TestStoredReason(t *testing.T) {
	for given, want := range map[string]string{
		"":                                      "",
		"no luck":                               "no luck",
		"a\xff\x00b":                            "a\ufffd\ufffdb",
		strings.Repeat("x", 1024):               "",
		strings.Repeat("é", 600):                strings.Repeat("é", 512),
		"x" + strings.Repeat("é", 600):          "x" + strings.Repeat("é", 511),
		"xyz" + strings.Repeat("🦆", 300):        "xyz" + strings.Repeat("🦆", 255),
		strings.Repeat("x", 1023) + "\xff rest": strings.Repeat("x", 1023),
	} {
		if want == "" {
			want = given
		}
		got := storage.Failure{Reason: given}.StoredReason()
		if got != want || len(got) > storage.MaxReasonBytes || !utf8.ValidString(got) {
			t.Errorf("%q (%d bytes) became %q (%d bytes)", given, len(given), got, len(got))
		}
	}
}

func TestFiltersMatch(t *testing.T) {
	r := storage.Record{
		Key: storage.Key{Scope: "test", ID: "1"}, State: storage.Completed,
		UpdatedAt: noon, ExpiresAt: noon.Add(time.Hour),
	}
	for name, test := range map[string]struct {
		filter storage.Filter
		at     time.Duration
		want   bool
	}{
		"scope":           {storage.Filter{Scope: "test"}, 0, true},
		"other scope":     {storage.Filter{Scope: "other"}, 0, false},
		"key":             {storage.Filter{Scope: "test", ID: "1"}, 0, true},
		"other key":       {storage.Filter{Scope: "test", ID: "2"}, 0, false},
		"other state":     {storage.Filter{Scope: "test", States: []storage.State{storage.Failed}}, 0, false},
		"too young":       {storage.Filter{Scope: "test", UnchangedFor: time.Minute}, time.Minute - 1, false},
		"just old enough": {storage.Filter{Scope: "test", UnchangedFor: time.Minute}, time.Minute, true},
		"forgotten":       {storage.Filter{Scope: "test"}, time.Hour, false},
	} {
		if got := test.filter.Matches(r, noon.Add(test.at)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestValidation(t *testing.T) {
	if err := (storage.Lease{Key: storage.Key{Scope: "a", ID: "b"}, Owner: "c"}).Validate(); err != nil {
		t.Error(err)
	}
	for _, err := range []error{
		storage.CheckLease(time.Millisecond - 1), storage.CheckRetention(0),
		storage.Failure{Retention: time.Second, Terminal: true, Excused: true}.Validate(),
		storage.Failure{Retention: time.Second, Terminal: true, Unrun: true}.Validate(),
		storage.Failure{Retention: time.Second, Excused: true, Unrun: true}.Validate(),
		storage.Filter{Scope: "a", UnchangedFor: -1}.Validate(),
		storage.ClaimRequest{}.Validate(),
	} {
		if !errors.Is(err, storage.ErrBadRequest) {
			t.Error(err)
		}
	}
	lease := storage.Lease{Key: storage.Key{Scope: "a", ID: "b"}}
	if err := storage.CheckCompletion(lease, []byte("abc"), 2, time.Second); !errors.Is(err, storage.ErrResultTooLarge) {
		t.Error(err)
	}
	if err := (storage.Filter{Scope: "a", ID: "\x00"}).Validate(); !errors.Is(err, storage.ErrBadKey) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	var got []string
	for s := range storage.Failed + 2 {
		got = append(got, s.String())
	}
	for o := range storage.GivenUp + 2 {
		got = append(got, o.String())
	}
	for d := range idempotency.Unavailable + 2 {
		got = append(got, d.String())
	}
	want := "[absent processing completed retryable failed unknown " +
		"unknown claimed duplicate in_progress not_due given_up unknown " +
		"unknown handled skipped dead_lettered elsewhere not_due retry lost unavailable unknown]"
	if fmt.Sprint(got) != want {
		t.Error(got)
	}
	if a, b := storage.NewOwner(), storage.NewOwner(); a == b || len(a) < 20 {
		t.Error(a, b)
	}
}
