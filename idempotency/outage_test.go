package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func TestTheLeaseIsExtendedWhileTheHandlerRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.becomes(idempotency.Handled, func(ctx context.Context) ([]byte, error) {
			for range 300 {
				wait(time.Second)
				if ctx.Err() != nil {
					t.Fatal(context.Cause(ctx))
				}
				f.becomes(idempotency.Elsewhere, unreachable(t))
			}
			return nil, nil
		})
		if n := f.store.count(storage.OpExtend); n < 29 || n > 31 {
			t.Errorf("%d extensions in 300 s", n)
		}
	})
}

func TestTheHandlerIsToldBeforeTheLeaseCanBeLost(t *testing.T) {
	for name, before := range map[string]func(storage.Operation) error{
		"the store fails": always(storage.OpExtend),
		"the store hangs": func(op storage.Operation) error {
			if op == storage.OpExtend {
				wait(20 * time.Second) // longer than it was allowed to
				return errDown
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.store.fail(before, nil)
				var cause error
				begun := time.Now()
				r := f.becomes(idempotency.Retry, func(ctx context.Context) ([]byte, error) {
					v, err := until(&cause)(ctx)
					if took := time.Since(begun); took != 30*time.Second*9/10 {
						t.Errorf("told after %s", took)
					}
					return v, err
				})
				if !errors.Is(cause, storage.ErrLeaseLost) {
					t.Error(cause)
				}
				if r.Wait != 0 || f.record().Excused != 1 || len(f.losses) != 0 {
					t.Errorf("%+v, %+v, %d losses", r, f.record(), len(f.losses))
				}
			})
		})
	}
}

func TestOneLostExtensionDoesNoHarm(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.store.fail(once(storage.OpExtend), nil)
		f.becomes(idempotency.Handled, func(ctx context.Context) ([]byte, error) {
			wait(2 * 30 * time.Second)
			return nil, ctx.Err()
		})
	})
}

func TestALostLeaseIsCompensatedAndItsResultDiscarded(t *testing.T) {
	for name, result := range map[string]error{"the handler succeeded": nil, "the handler failed": errHandler} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				var seen []idempotency.Loss
				f.options.Observer.LeaseLost = func(l idempotency.Loss) { seen = append(seen, l) }
				var lease storage.Lease
				r, err := f.tries(idempotency.Lost, func(ctx context.Context) ([]byte, error) {
					lease, _ = storage.LeaseFrom(ctx)
					if _, err := f.memory.Release(ctx, f.message.Key); err != nil {
						t.Fatal(err)
					}
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, storage.ErrLeaseLost) {
						t.Error(cause)
					}
					return []byte("late"), result
				})
				if !errors.Is(err, storage.ErrLeaseLost) || r.Value != nil {
					t.Errorf("%+v, %v", r, err)
				}
				if len(f.losses) != 1 || len(seen) != 1 || f.losses[0].Lease != lease || f.losses[0].Err != result || f.losses[0].Message != f.message {
					t.Fatalf("%+v", f.losses)
				}
				if result == nil && string(f.losses[0].Result) != "late" {
					t.Errorf("%+v", f.losses)
				}
				if n := f.store.count(storage.OpComplete) + f.store.count(storage.OpFail); n != 0 {
					t.Errorf("%d settlements of a lost lease", n)
				}
				f.becomes(idempotency.Handled, succeed)
			})
		})
	}
}

// A successor may come between the last extension and the completion.
func TestALeaseLostAtTheLastMomentIsCompensated(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.becomes(idempotency.Lost, func(ctx context.Context) ([]byte, error) {
			_, err := f.memory.Release(ctx, f.message.Key)
			return []byte("late"), err
		})
		if len(f.losses) != 1 || f.record().State != storage.Retryable {
			t.Errorf("%+v, %s", f.losses, f.record().State)
		}
	})
}

func TestALateHandlerMayStillComplete(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.store.fail(always(storage.OpExtend), nil)
		f.becomes(idempotency.Handled, func(context.Context) ([]byte, error) {
			wait(2 * 30 * time.Second) // the context has ended, but nobody else came
			return nil, nil
		})
		if len(f.losses) != 0 {
			t.Errorf("%+v", f.losses)
		}
	})
}

func TestACallWhoseAnswerIsLostIsRepeated(t *testing.T) {
	for _, op := range []storage.Operation{storage.OpClaim, storage.OpComplete, storage.OpFail} {
		t.Run(string(op), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.store.fail(nil, once(op))
				want, handler := idempotency.Handled, idempotency.Handler(succeed)
				if op == storage.OpFail {
					want, handler = idempotency.Retry, failing
				}
				if r := f.becomes(want, handler); r.Attempt != 1 {
					t.Errorf("%+v", r)
				}
				if n := f.store.count(op); n != 2 || f.record().Attempts != 1 {
					t.Errorf("%d calls, %+v", n, f.record())
				}
			})
		})
	}
}

func TestAClaimThatCannotBeAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.options.FailOpen = false
		f.store.fail(always(storage.OpClaim), nil)
		r, err := f.tries(idempotency.Unavailable, unreachable(t))
		if !errors.Is(err, errDown) || r.Wait <= 0 || f.store.count(storage.OpClaim) != 2 {
			t.Errorf("%+v, %v, %d calls", r, err, f.store.count(storage.OpClaim))
		}
	})
}

func TestFailOpenRunsUnclaimed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		opened := 0
		f.options.FailOpen = true
		f.options.Observer.FailOpen = func(_ idempotency.Message, err error) {
			if errors.Is(err, errDown) {
				opened++
			}
		}
		f.store.fail(always(storage.OpClaim), nil)
		r := f.becomes(idempotency.Handled, func(ctx context.Context) ([]byte, error) {
			if _, ok := storage.LeaseFrom(ctx); ok {
				t.Error("a lease without a claim")
			}
			return []byte("result"), nil
		})
		if string(r.Value) != "result" || opened != 1 || f.record().State != storage.Absent {
			t.Errorf("%+v, %d", r, opened)
		}
		f.becomes(idempotency.Retry, failing)
		f.becomes(idempotency.DeadLettered, func(context.Context) ([]byte, error) { return nil, idempotency.Terminal(errHandler) })
		f.store.fail(nil, nil)
		f.becomes(idempotency.Handled, succeed)
		f.message.Fingerprint = idempotency.FingerprintBytes(nil)
		f.becomes(idempotency.DeadLettered, unreachable(t)) // an answer is no outage
		f.message.Fingerprint = "longer than a fingerprint may be " + f.message.Fingerprint + f.message.Fingerprint + f.message.Fingerprint
		f.becomes(idempotency.Retry, unreachable(t)) // nor is a mistake
	})
}

func TestAnUnknownCompletionIsFoundOutLater(t *testing.T) {
	for name, faults := range map[string]struct {
		before, after func(storage.Operation) error
		want          idempotency.Disposition
	}{
		"carried out":     {after: always(storage.OpComplete), want: idempotency.Skipped},
		"not carried out": {before: always(storage.OpComplete), want: idempotency.Handled},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.store.fail(faults.before, faults.after)
				begun := time.Now()
				r, err := f.tries(idempotency.Unavailable, succeed)
				if !errors.Is(err, errDown) || r.Value != nil || len(f.losses) != 0 {
					t.Errorf("%+v, %v, %d losses", r, err, len(f.losses))
				}
				if took := time.Since(begun); took > 30*time.Second/3 || f.store.count(storage.OpComplete) < 3 {
					t.Errorf("%d calls in %s", f.store.count(storage.OpComplete), took)
				}
				f.store.fail(nil, nil)
				wait(30 * time.Second)
				f.becomes(faults.want, succeed)
			})
		})
	}
}

func TestACallThatHangsIsRepeated(t *testing.T) {
	for _, op := range []storage.Operation{storage.OpClaim, storage.OpComplete} {
		t.Run(string(op), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.store.hang = once(op)
				f.becomes(idempotency.Handled, succeed)
				if n := f.store.count(op); n != 2 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

func TestShutdown(t *testing.T) {
	stopped := errors.New("partition revoked")
	t.Run("the handler gives up", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) {
			ctx, cancel := context.WithCancelCause(t.Context())
			var cause error
			time.AfterFunc(time.Second, func() { cancel(stopped) })
			r, err := f.runWith(ctx, until(&cause))
			if r.Disposition != idempotency.Retry || r.Wait != 0 || !errors.Is(err, context.Canceled) || cause != stopped {
				t.Errorf("%+v, %v, cause %v", r, err, cause)
			}
			if r := f.record(); r.State != storage.Retryable || r.Attempts != 1 || r.Excused != 1 {
				t.Errorf("%+v", r)
			}
			if r := f.becomes(idempotency.Handled, succeed); r.Attempt != 2 {
				t.Errorf("%+v", r)
			}
		})
	})
	t.Run("the handler finishes", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) {
			ctx, cancel := context.WithCancelCause(t.Context())
			r, err := f.runWith(ctx, func(context.Context) ([]byte, error) {
				cancel(stopped)
				return nil, nil
			})
			if r.Disposition != idempotency.Handled || err != nil {
				t.Errorf("%+v, %v", r, err)
			}
		})
	})
	t.Run("many times over, nothing is given up", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) {
			for range 3 * 12 {
				ctx, cancel := context.WithCancelCause(t.Context())
				var cause error
				time.AfterFunc(time.Second, func() { cancel(stopped) })
				if r, _ := f.runWith(ctx, until(&cause)); r.Disposition != idempotency.Retry {
					t.Fatalf("%+v", r)
				}
			}
			f.becomes(idempotency.Handled, succeed)
		})
	})
	t.Run("while the store is down", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) {
			ctx, cancel := context.WithCancelCause(t.Context())
			f.store.fail(always(storage.OpFail), nil)
			var cause error
			time.AfterFunc(time.Second, func() { cancel(stopped) })
			begun := time.Now()
			r, _ := f.runWith(ctx, until(&cause))
			if took := time.Since(begun); r.Disposition != idempotency.Unavailable || took > time.Second+30*time.Second/3 {
				t.Errorf("%+v after %s", r, took)
			}
		})
	})
}
