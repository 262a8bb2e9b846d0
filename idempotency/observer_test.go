package idempotency_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func TestTheObserverIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var outcomes []storage.Outcome
		var ends []idempotency.Disposition
		var calls []storage.Operation
		f.options.Observer = idempotency.Observer{
			Claim: func(m idempotency.Message, c storage.Claim) {
				if m != f.message {
					t.Errorf("%+v", m)
				}
				outcomes = append(outcomes, c.Outcome)
			},
			Run: func(_ idempotency.Message, r idempotency.Result, err error, elapsed time.Duration) {
				if (err == nil) != r.Done() {
					t.Errorf("%s, %v", r.Disposition, err)
				}
				if r.Disposition == idempotency.Handled && elapsed != 15*time.Second {
					t.Errorf("took %s", elapsed)
				}
				ends = append(ends, r.Disposition)
			},
			StoreCall: func(op storage.Operation, elapsed time.Duration, err error) {
				if elapsed != 0 || err != nil && !errors.Is(err, errDown) {
					t.Errorf("%s took %s: %v", op, elapsed, err)
				}
				calls = append(calls, op)
			},
		}
		f.becomes(idempotency.Handled, func(context.Context) ([]byte, error) {
			wait(15 * time.Second)
			return nil, nil
		})
		f.becomes(idempotency.Skipped, unreachable(t))
		f.message.Key.ID = "another"
		f.becomes(idempotency.Retry, failing)
		f.becomes(idempotency.NotDue, failing)
		f.store.fail(always(storage.OpClaim), nil)
		f.becomes(idempotency.Unavailable, unreachable(t))

		wantOutcomes := []storage.Outcome{storage.Claimed, storage.Duplicate, storage.Claimed, storage.NotDue}
		wantEnds := []idempotency.Disposition{
			idempotency.Handled, idempotency.Skipped, idempotency.Retry, idempotency.NotDue, idempotency.Unavailable,
		}
		wantCalls := []storage.Operation{
			storage.OpClaim, storage.OpExtend, storage.OpComplete, storage.OpClaim, storage.OpClaim,
			storage.OpFail, storage.OpClaim, storage.OpClaim, storage.OpClaim,
		}
		if !slices.Equal(outcomes, wantOutcomes) || !slices.Equal(ends, wantEnds) || !slices.Equal(calls, wantCalls) {
			t.Errorf("%v\n%v\n%v", outcomes, ends, calls)
		}
	})
}
