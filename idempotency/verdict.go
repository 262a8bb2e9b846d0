package idempotency

import (
	"errors"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// ErrLeaseLost is the cause of a handler's context ending because the message
// does not belong to it any more, or soon may not.
var ErrLeaseLost = storage.ErrLeaseLost

// What there is to say about Elsewhere and NotDue.
var (
	errInProgress = errors.New("message is being handled elsewhere")
	errNotDue     = errors.New("next attempt is not due")
)
