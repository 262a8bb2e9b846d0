package storage

import "context"

// Checker is a Store that can look at the server: at the start of a program,
// and by an operator's hand.
type Checker interface {
	// Check returns the faults of the server, or may become so. None found means
	// that only what the store's documentation lists as unavoidable remains. The
	// error says it could not be asked.
	Check(ctx context.Context) ([]Problem, error)
}

// Problem is something about a server because of which the store cannot work, or
// keys can be forgotten before their retention is over.
type Problem struct {
	// Fatal: the store does not work. Otherwise it does, with the cost or the
	// danger that Text names.
	Fatal bool
	// Text says what is the matter and what it leads to.
	Text string
	// Remedy is the remedy for it, or a command that does.
	Remedy string
}

// String returns what is the matter and the remedy, in a single line if the
// remedy has one.
func (p Problem) String() string { return p.Text + " (" + p.Remedy + ")" }
