package idempotency_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// A fence must grow beyond a forgotten record, a clock that stands still, and a
// clock that was set back.
func TestFences(t *testing.T) {
	req := idempotency.ClaimRequest{Owner: "a", Lease: time.Second, Retention: time.Second}
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
			_, c, err := idempotency.Record{Fence: test.last}.Claim(test.now, req)
			if err != nil || c.Lease.Fence != test.want {
				t.Errorf("%d, %v, want %d", c.Lease.Fence, err, test.want)
			}
		})
	}
}

func TestATransitionLeavesTheRecordItCameFrom(t *testing.T) {
	before := idempotency.Record{
		Key: idempotency.Key{Scope: "test", ID: "1"}, State: idempotency.Completed, Owner: "a", Fence: 1,
		Result: []byte("result"), ExpiresAt: noon.Add(time.Hour),
	}
	_, c, err := before.Claim(noon, idempotency.ClaimRequest{Owner: "b", Lease: time.Second, Retention: time.Second})
	if err != nil || c.Outcome != idempotency.Duplicate {
		t.Fatal(c, err)
	}
	clear(c.Result)
	if string(before.Result) != "result" {
		t.Error("the result is shared")
	}
	if r := before.At(before.ExpiresAt); r.State != idempotency.Absent || r.Fence != 1 || r.Key != before.Key || r.Owner != "" {
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
		got := idempotency.Failure{Reason: given}.StoredReason()
		if got != want || len(got) > idempotency.MaxReasonBytes || !utf8.ValidString(got) {
			t.Errorf("%q (%d bytes) became %q (%d bytes)", given, len(given), got, len(got))
		}
	}
}

func TestFiltersMatch(t *testing.T) {
	r := idempotency.Record{
		Key: idempotency.Key{Scope: "test", ID: "1"}, State: idempotency.Completed,
		UpdatedAt: noon, ExpiresAt: noon.Add(time.Hour),
	}
	for name, test := range map[string]struct {
		filter idempotency.Filter
		at     time.Duration
		want   bool
	}{
		"scope":           {idempotency.Filter{Scope: "test"}, 0, true},
		"other scope":     {idempotency.Filter{Scope: "other"}, 0, false},
		"key":             {idempotency.Filter{Scope: "test", ID: "1"}, 0, true},
		"other key":       {idempotency.Filter{Scope: "test", ID: "2"}, 0, false},
		"other state":     {idempotency.Filter{Scope: "test", States: []idempotency.State{idempotency.Failed}}, 0, false},
		"too young":       {idempotency.Filter{Scope: "test", UnchangedFor: time.Minute}, time.Minute - 1, false},
		"just old enough": {idempotency.Filter{Scope: "test", UnchangedFor: time.Minute}, time.Minute, true},
		"forgotten":       {idempotency.Filter{Scope: "test"}, time.Hour, false},
	} {
		if got := test.filter.Matches(r, noon.Add(test.at)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestValidation(t *testing.T) {
	if err := (idempotency.Lease{Key: idempotency.Key{Scope: "a", ID: "b"}, Owner: "c"}).Validate(); err != nil {
		t.Error(err)
	}
	for _, err := range []error{
		idempotency.CheckLease(time.Millisecond - 1), idempotency.CheckRetention(0),
		idempotency.Failure{Retention: time.Second, Terminal: true, Excused: true}.Validate(),
		idempotency.Failure{Retention: time.Second, Terminal: true, Unrun: true}.Validate(),
		idempotency.Failure{Retention: time.Second, Excused: true, Unrun: true}.Validate(),
		idempotency.Filter{Scope: "a", UnchangedFor: -1}.Validate(),
		idempotency.ClaimRequest{}.Validate(),
	} {
		if !errors.Is(err, idempotency.ErrBadRequest) {
			t.Error(err)
		}
	}
	if err := (idempotency.Filter{Scope: "a", ID: "\x00"}).Validate(); !errors.Is(err, idempotency.ErrBadKey) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	var got []string
	for s := range idempotency.Failed + 2 {
		got = append(got, s.String())
	}
	for o := range idempotency.GivenUp + 2 {
		got = append(got, o.String())
	}
	for d := range idempotency.Unavailable + 2 {
		got = append(got, d.String())
	}
	want := "[absent processing completed retryable failed unknown " +
		"unknown claimed duplicate in_progress not_due given_up unknown " +
		"unknown handled skipped dead_lettered elsewhere retry lost unavailable unknown]"
	if fmt.Sprint(got) != want {
		t.Error(got)
	}
	if a, b := idempotency.NewOwner(), idempotency.NewOwner(); a == b || len(a) < 20 {
		t.Error(a, b)
	}
}
