package idempotency_test

import (
	"context"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// What a Runner does with what an earlier Run left: here, a claim without an
// answer, which it asks for again.
func ExamplePending() {
	key := idempotency.Key{Scope: "shipping", ID: "order-42"}
	left := &idempotency.Pending{Key: key, Owner: "a"} // a Result.Pending
	ctx := idempotency.ContextWithPending(context.Background(), left)

	p := idempotency.PendingOn(ctx, key)
	fmt.Println("claims for", p.Claiming(), "again; given up:", p.GivenUp(), "with its letter kept:", p.Buried)

	other := idempotency.PendingOn(ctx, idempotency.Key{Scope: "shipping", ID: "order-43"})
	fmt.Println(other == nil, other.Claiming() != "a")
	// Output:
	// claims for a again; given up: false with its letter kept: false
	// true true
}
