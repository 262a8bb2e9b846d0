package checkpoint_test

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

func ExampleTracker() {
	tracker := checkpoint.NewTracker(0x100)

	first := tracker.Add() // a transaction with two records
	tracker.Add()
	_ = tracker.Seal(0x200, checkpoint.Landmark{})
	second := tracker.Add() // and another with a single record
	_ = tracker.Seal(0x300, checkpoint.Landmark{})

	tracker.Done(second, 1)
	fmt.Println("second acked:", tracker.Position())
	tracker.Done(first, 1)
	fmt.Println("first half acked:", tracker.Position())
	tracker.Done(first, 1)
	fmt.Println("all acked:", tracker.Position())
	_ = tracker.Keepalive(0x400)
	fmt.Println("nothing more:", tracker.Position())

	// Output:
	// second acked: 0/100
	// first half acked: 0/100
	// all acked: 0/300
	// nothing more: 0/400
}
