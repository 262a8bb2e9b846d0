package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// A message delivered twice is handled once; the duplicate gets the first
// delivery's result.
func ExampleProcessor() {
	processor, err := idempotency.New(idempotency.Options{
		Store: memory.New(memory.Options{}), // in earnest, a shared store
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
			fmt.Println("dead letter:", d.Message.Key, d.Reason)
			return nil
		},
		Compensate: func(_ context.Context, l idempotency.Loss) { fmt.Println("undo:", l.Message.Key) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer processor.Close()
	payload := []byte(`{"order":17}`)
	message := idempotency.Message{
		Key:         storage.Key{Scope: "shipping", ID: "018f3c1e-7b5a-7c3e-9d2f-1a2b3c4d5e6f"},
		Fingerprint: idempotency.FingerprintJSON(payload),
	}
	ship := func(context.Context) ([]byte, error) {
		fmt.Println("ships")
		return []byte("parcel 1"), nil
	}
	for range 2 {
		result, err := processor.Run(context.Background(), message, ship)
		fmt.Printf("%s %q done=%t %v\n", result.Disposition, result.Value, result.Done(), err)
	}
	message.Fingerprint = idempotency.FingerprintJSON([]byte(`{"order":18}`))
	result, _ := processor.Run(context.Background(), message, ship)
	fmt.Println(result.Disposition)
	// Output:
	// ships
	// handled "parcel 1" done=true <nil>
	// skipped "parcel 1" done=true <nil>
	// dead letter: shipping/018f3c1e-7b5a-7c3e-9d2f-1a2b3c4d5e6f claim key: claim "shipping/018f3c1e-7b5a-7c3e-9d2f-1a2b3c4d5e6f": idempotency key is known with another payload
	// dead_lettered
}

func ExampleTerminal() {
	processor, err := idempotency.New(idempotency.Options{
		Store: memory.New(memory.Options{}),
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
			fmt.Println("dead letter after", d.Attempts, "attempt:", d.Reason)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer processor.Close()
	message := idempotency.Message{Key: storage.Key{Scope: "shipping", ID: "1"}}
	result, err := processor.Run(context.Background(), message, func(context.Context) ([]byte, error) {
		return nil, idempotency.Terminal(errors.New("no such address"))
	})
	fmt.Println(result.Disposition, err)
	// Output:
	// dead letter after 1 attempt: no such address
	// dead_lettered <nil>
}

// The store can be used without a Processor.
func ExampleStore() {
	var store storage.Store = memory.New(memory.Options{})
	ctx, key := context.Background(), storage.Key{Scope: "shipping", ID: "1"}

	claim, err := store.Claim(ctx, key, storage.ClaimRequest{
		Owner: storage.NewOwner(), Lease: 30 * time.Second, Retention: 24 * time.Hour,
	})
	fmt.Println(claim.Outcome, claim.Attempts, err)
	fmt.Println(store.Extend(ctx, claim.Lease, time.Minute))
	fmt.Println(store.Fail(ctx, claim.Lease, storage.Failure{
		Reason: "no parcels left", RetryAfter: time.Hour, Retention: 24 * time.Hour,
	}))
	record, err := store.Inspect(ctx, key)
	fmt.Println(record.State, record.Reason, err)
	// Output:
	// claimed 1 <nil>
	// <nil>
	// <nil>
	// retryable no parcels left <nil>
}

func ExampleOperator() {
	store := memory.New(memory.Options{})
	var operator storage.Operator = store
	ctx, key := context.Background(), storage.Key{Scope: "shipping", ID: "1"}
	claim, err := store.Claim(ctx, key, storage.ClaimRequest{Owner: "crashed", Lease: time.Hour, Retention: time.Hour})
	fmt.Println(claim.Outcome, err)

	before, err := operator.Release(ctx, key)
	fmt.Println("was", before.State, "by", before.Owner, err)
	fmt.Println(store.Complete(ctx, claim.Lease, nil, time.Hour))

	n, err := operator.Purge(ctx, storage.Filter{
		Scope: "shipping", States: []storage.State{storage.Retryable},
	})
	fmt.Println("purged", n, err)
	// Output:
	// claimed <nil>
	// was processing by crashed <nil>
	// complete "shipping/1": lease lost
	// purged 1 <nil>
}

// A handler hands the fence to the resource written to, which can then refuse a
// handler paused beyond the lease.
func ExampleFenceFrom() {
	lease := storage.Lease{Key: storage.Key{Scope: "shipping", ID: "1"}, Owner: "a", Fence: 42}
	handler := func(ctx context.Context) ([]byte, error) {
		fence, ok := idempotency.FenceFrom(ctx)
		fmt.Println(fence, ok)
		return nil, nil
	}
	_, _ = handler(storage.ContextWithLease(context.Background(), lease))
	_, _ = handler(context.Background())
	// Output:
	// 42 true
	// 0 false
}

func ExampleFingerprintJSON() {
	a := idempotency.FingerprintJSON([]byte(`{"order": 17, "total": 10.50}`))
	b := idempotency.FingerprintJSON([]byte(`{"total":10.5,"order":17}`))
	c := idempotency.FingerprintJSON([]byte(`{"total":10.51,"order":17}`))
	fmt.Println(a == b, a.Conflicts(c))
	// Of another version: not compared.
	fmt.Println(a.Conflicts(idempotency.FingerprintBytes([]byte("x"))))
	// Output:
	// true true
	// false
}

func ExampleKey_Validate() {
	fmt.Println(storage.Key{Scope: "shipping", ID: "1"}.Validate())
	fmt.Println(storage.Key{Scope: "shipping"}.Validate())
	// Output:
	// <nil>
	// bad idempotency key: the id is empty
}

// A filter without states means the keys neither running nor still to be run.
func ExampleFilter() {
	for _, state := range (storage.Filter{Scope: "shipping"}).StatesOrDefault() {
		fmt.Println(state)
	}
	fmt.Println(storage.Filter{UnchangedFor: time.Hour}.Validate())
	// Output:
	// completed
	// failed
	// bad idempotency key: scope "" must be 1 to 100 letters, digits, dots, underscores or hyphens
}
