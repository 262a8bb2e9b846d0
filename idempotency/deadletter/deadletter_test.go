package deadletter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/deadletter"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func headers(reason error) map[string]string {
	letter := idempotency.DeadLetter{
		Message: idempotency.Message{Key: idempotency.Key{Scope: "shipping", ID: "1"}}, Attempts: 3, Reason: reason,
	}
	origin := deadletter.Origin{Topic: "orders", Partition: 2, Offset: 7, Timestamp: time.Unix(1_800_000_000, 5e6)}
	all := map[string]string{}
	for _, h := range deadletter.Headers(letter, origin) {
		all[h.Key] = h.Value
	}
	return all
}

func TestHeaders(t *testing.T) {
	got := headers(errors.New("no such address"))
	for name, want := range map[string]string{
		deadletter.HeaderReason: deadletter.ReasonFailed, deadletter.HeaderError: "no such address",
		deadletter.HeaderScope: "shipping", deadletter.HeaderAttempts: "3",
		deadletter.HeaderTopic: "orders", deadletter.HeaderPartition: "2", deadletter.HeaderOffset: "7",
		deadletter.HeaderTimestamp: "2027-01-15T08:00:00.005Z",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	for want, reason := range map[string]error{
		deadletter.ReasonBadKey:   fmt.Errorf("claim: %w", storage.ErrBadKey),
		deadletter.ReasonMismatch: fmt.Errorf("claim: %w", storage.ErrMismatch),
		deadletter.ReasonFailed:   nil,
	} {
		if got := headers(reason)[deadletter.HeaderReason]; got != want {
			t.Errorf("%v: reason %s, want %s", reason, got, want)
		}
	}
}

// A header must not keep a record from being written.
func TestALongReasonIsCut(t *testing.T) {
	got := headers(errors.New(strings.Repeat("ä", 10_000)))[deadletter.HeaderError]
	if len(got) > storage.MaxReasonBytes || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid: %t", len(got), utf8.ValidString(got))
	}
}
