package guard_test

import (
	"errors"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
)

// The error says what somebody needs who must look at the row.
func ExampleStateError() {
	err := fmt.Errorf("handle payment: %w", // as a Transition returns it
		&guard.StateError{Table: "orders", ID: 2, Present: "CANCELLED", To: "PAID"})

	var state *guard.StateError
	if errors.As(err, &state) {
		fmt.Println(state.Table, state.ID, state.Present, state.To)
	}
	fmt.Println(err)
	// Output:
	// orders 2 CANCELLED PAID
	// handle payment: row 2 of orders is "CANCELLED", which does not lead to "PAID"
}
