// Package usercode runs the user's functions, with panics turned into errors,
// and finds missing values where the user gives an interface.
package usercode

import (
	"fmt"
	"runtime/debug"
)

// Panic is the error of a panic.
type Panic struct {
	value any
	stack []byte
}

// Error returns the value of the panic, in a single line.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// Unwrap returns the value, if an error.
func (p *Panic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// Stack returns the stack of the panic's goroutine.
func (p *Panic) Stack() []byte { return p.stack }

// Call returns f's error, or a *Panic if f panics.
func Call(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{value: value, stack: debug.Stack()}
		}
	}()
	return f()
}
