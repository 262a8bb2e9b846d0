// Package failure gives an error the two things an operator needs from it: the
// class, which decides the exit code, and the remedy.
package failure

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Class says what an error means for the running connector.
type Class uint8

// The classes, in rising order of severity. The numbers are public, by ExitCode.
const (
	// Transient may pass: retry, or exit 1 and let a supervisor restart.
	Transient Class = iota
	// Config needs a change of configuration or privileges: exit 2.
	Config
	// Loss means that events may have been lost or cannot be had any more;
	// an operator must decide: exit 3.
	Loss
)

// ExitCode is the process exit code of the public contract for the class.
func (c Class) ExitCode() int { return int(c) + 1 }

// Error is an error with a class and, where there is one, a remedy: the exact
// SQL, setting or command that fixes it.
type Error struct {
	Class  Class
	Remedy string
	Err    error
}

// Error implements error; the remedy is not part of it.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Configf returns a Config error; the message is formatted as by fmt.Errorf.
func Configf(remedy, format string, args ...any) error {
	return &Error{Class: Config, Remedy: remedy, Err: fmt.Errorf(format, args...)}
}

// Lossf returns a Loss error; the message is formatted as by fmt.Errorf.
func Lossf(remedy, format string, args ...any) error {
	return &Error{Class: Loss, Remedy: remedy, Err: fmt.Errorf(format, args...)}
}

// ClassOf returns the class of the first Error in err's chain, or Transient.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Transient
}

// RemedyOf returns the remedy of the first Error in err's chain that has one,
// or "". Where several mistakes in a configuration are joined, it returns the
// remedies of all, in a single line.
func RemedyOf(err error) string {
	if mistakes := Split(err); len(mistakes) > 1 && !slices.ContainsFunc(mistakes, func(err error) bool { return ClassOf(err) != Config }) {
		var remedies []string
		for _, mistake := range mistakes {
			if remedy := RemedyOf(mistake); remedy != "" && !slices.Contains(remedies, remedy) {
				remedies = append(remedies, remedy)
			}
		}
		return strings.Join(remedies, "; ")
	}
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if e.Remedy != "" {
			return e.Remedy
		}
		err = e.Err
	}
	return ""
}

// Join is errors.Join with the worst error first, whose class is then that of
// all.
func Join(errs ...error) error {
	errs = slices.Clone(errs)
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(ClassOf(b), ClassOf(a)) })
	return errors.Join(errs...)
}

// Split lists the errors joined in err, at any depth; none for nil.
func Split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Split(e)...)
	}
	return all
}
