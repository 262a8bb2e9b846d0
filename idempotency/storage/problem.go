package storage

import "context"

// Checker is a Store with a check of the server: at the start of a program, and
// by an operator's hand.
type Checker interface {
	// Check returns what is wrong with the server, or may become so. None found
	// means that only what the store's documentation lists as unavoidable
	// remains. The error means that the server could not be asked.
	Check(ctx context.Context) ([]Problem, error)
}

// Problem is something about a server because of which the store cannot work,
// or may forget keys before their retention is over.
type Problem struct {
	// Fatal: the store does not work. Otherwise the store works, with the cost or
	// the danger in Text.
	Fatal bool
	// Text says what is the matter and what it leads to.
	Text string
	// Remedy is what to do about it, or a command that does it.
	Remedy string
}

// String returns the problem and the remedy, in one line if the remedy has one.
func (p Problem) String() string { return p.Text + " (" + p.Remedy + ")" }
