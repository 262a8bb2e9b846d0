package idempotency

import (
	"errors"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// ErrLeaseLost is the cause with which a handler's context ends if the message
// is not the handler's any more, or soon may not be.
var ErrLeaseLost = storage.ErrLeaseLost

// Reasons of Elsewhere and NotDue.
var (
	errInProgress = errors.New("message is being handled elsewhere")
	errNotDue     = errors.New("next attempt is not due")
)
