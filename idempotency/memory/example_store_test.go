package memory_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
)

// A store by itself, as a Processor uses it: each change is the owner's alone.
func ExampleStore() {
	ctx := context.Background()
	store := memory.NewStore(memory.StoreOptions{MaxResultBytes: 8})
	key := idempotency.Key{Scope: "shipping", ID: "order-42"}
	request := func(owner string) idempotency.ClaimRequest {
		return idempotency.ClaimRequest{Owner: owner, Lease: time.Minute, Retention: time.Hour}
	}

	first, err := store.Claim(ctx, key, request("a"))
	fmt.Println(first.Outcome, first.Attempts, err)
	fmt.Println(store.Extend(ctx, first.Lease, 2*time.Minute))
	err = store.Complete(ctx, first.Lease, []byte("a label that is too long"), time.Hour)
	fmt.Println(errors.Is(err, idempotency.ErrResultTooLarge))
	fmt.Println(store.Fail(ctx, first.Lease, idempotency.Failure{Reason: "the printer is out", Retention: time.Hour}))

	second, err := store.Claim(ctx, key, request("b"))
	fmt.Println(second.Outcome, second.Attempts, second.Reason, err)
	fmt.Println(store.Fail(ctx, second.Lease, idempotency.Failure{Terminal: true, Reason: "no such address", Retention: time.Hour}))

	third, err := store.Claim(ctx, key, request("c"))
	fmt.Println(third.Outcome, third.Reason, err)
	// Output:
	// claimed 1 <nil>
	// <nil>
	// true
	// <nil>
	// claimed 2 the printer is out <nil>
	// <nil>
	// given_up no such address <nil>
}
