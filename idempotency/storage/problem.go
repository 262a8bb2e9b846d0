package storage

import "context"

// Checker is a Store with a check of the server: at the start of a program, and
// by an operator's hand.
type Checker interface {
	// Check returns the faults of the server, or may become so. None found means:
	// none but the unavoidable ones in the store's documentation. The error means
	// a server out of reach.
	Check(ctx context.Context) ([]Problem, error)
}

// Problem is a fault of a server for the store's work, or for the retention of
// keys.
type Problem struct {
	// Fatal: the store does not work. Otherwise the store works, with the cost or
	// the danger in Text.
	Fatal bool
	// Text has the fault and the consequence.
	Text string
	// Remedy is a step for the operator, or a command.
	Remedy string
}

// String returns fault and remedy, in a single line if the remedy has one.
func (p Problem) String() string { return p.Text + " (" + p.Remedy + ")" }
