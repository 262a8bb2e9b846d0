package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is what errors.Is finds in an InvalidError.
var ErrInvalid = errors.New("invalid event")

// Problem is a fault of a single event.
type Problem struct {
	// Event is the event's index in the call.
	Event int
	// Field is the field of Event; for a header, Headers["name"].
	Field string
	// Err says what is wrong. It holds no part of a payload, except for an error
	// of a payload's own MarshalJSON.
	Err error
}

// Error tells the event, the field and the fault.
func (p Problem) Error() string { return fmt.Sprintf("event %d: %s %v", p.Event, p.Field, p.Err) }

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// InvalidError lists all faults of the events of a call, in their order. The
// database was not asked: the transaction can go on.
type InvalidError struct {
	Problems []Problem
}

// shownProblems is how many of them an error message has.
const shownProblems = 5

// Error tells the first problems and how many there are.
func (e *InvalidError) Error() string {
	shown := min(len(e.Problems), shownProblems)
	texts := make([]string, shown, shown+1)
	for i := range texts {
		texts[i] = e.Problems[i].Error()
	}
	if more := len(e.Problems) - shown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return ErrInvalid.Error() + ": " + strings.Join(texts, "; ")
}

// Unwrap returns ErrInvalid and the problems.
func (e *InvalidError) Unwrap() []error {
	errs := make([]error, 0, 1+len(e.Problems))
	errs = append(errs, ErrInvalid)
	for _, p := range e.Problems {
		errs = append(errs, p)
	}
	return errs
}
