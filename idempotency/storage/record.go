package storage

import (
	"fmt"
	"slices"
	"time"
)

// State is where a key stands.
type State uint8

// The states.
//
//	Absent ──claim──▶ Processing ──complete──▶ Completed
//	                   │   ▲  ▲ └──fail, terminal──▶ Failed
//	      lease ends:  └───┘  └──claim, when due── Retryable ◀──fail──
//	      claim again
const (
	Absent     State = iota // unknown, or forgotten after the retention
	Processing              // somebody holds the lease, or held it and vanished
	Completed               // done; duplicates get the result
	Retryable               // the last attempt failed; to be claimed again when due
	Failed                  // given up; only an operator brings the message back
)

var stateNames = [...]string{"absent", "processing", "completed", "retryable", "failed"}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// UnmarshalText sets the state by its name, as String returns it. An unknown
// name is an error that contains it.
func (s *State) UnmarshalText(name []byte) error {
	i := slices.Index(stateNames[:], string(name))
	if i < 0 {
		return fmt.Errorf("unknown state %q", name)
	}
	*s = State(i)
	return nil
}

// Record is what a store knows of a key. Times are the store's clock.
type Record struct {
	Key         Key
	State       State
	Fingerprint Fingerprint
	// Owner and Fence are the last claim's.
	Owner string
	Fence int64
	// Attempts counts the claims granted, without those given back unused
	// (Failure.Unrun): how often the handler was called.
	Attempts int
	// Vanished counts the attempts that ended without an outcome, because their
	// process died or was paused beyond the lease; Excused the failures through no
	// fault of the message (Failure.Excused). The others failed, except perhaps
	// for the last: running, or successful.
	Vanished, Excused int
	// LeaseUntil is set while Processing, RetryAt while Retryable.
	LeaseUntil time.Time
	RetryAt    time.Time
	// Result is the completed attempt's. It belongs to the caller.
	Result []byte
	// Reason is the last failure's.
	Reason    string
	UpdatedAt time.Time
	// ExpiresAt is when the store may forget the key.
	ExpiresAt time.Time
}
