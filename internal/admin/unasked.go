package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// unasked collects the parts of a cluster without an answer, beside the answers of the rest.
type unasked struct {
	of   []string
	last error
}

// take returns nil for an err about a part of the answers only, and notes the part.
func (u *unasked) take(err error) error {
	part, ok := errors.AsType[*broker.Partly](err)
	if !ok {
		return err
	}
	for _, untold := range part.Untold {
		u.note(untold.Of, untold.Err)
	}
	return nil
}

func (u *unasked) note(of string, err error) {
	if !slices.Contains(u.of, of) {
		u.of = append(u.of, of)
	}
	u.last = err
}

// err is nil where all could be asked.
func (u *unasked) err(cfg sink.Options) error {
	if len(u.of) == 0 {
		return nil
	}
	return &failure.Error{
		Class:  failure.Transient,
		Remedy: cfg.Tools().StartBrokers(""),
		Err:    &partly{fmt.Errorf("no broker tells of transactions of %s: %w", strings.Join(u.of, "; "), u.last)},
	}
}

// partly is the error of a list of transactions without those no broker tells of.
type partly struct{ err error }

// Error implements error.
func (e *partly) Error() string { return e.err.Error() }

// Unwrap returns the last reason.
func (e *partly) Unwrap() error { return e.err }

func isPartly(err error) bool {
	_, ok := errors.AsType[*partly](err)
	return ok
}
