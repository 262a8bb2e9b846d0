package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// ErrUnsettled is wrapped by errors of Transactions with an unknown outcome: only the
// checkpoint tells, after a new claim, which records count. ErrUnsettled has no class.
var ErrUnsettled = errors.New("the Kafka transaction did not end as it should, so that only the checkpoint tells what counts")

// ErrFenced is the ErrUnsettled after another claim of the transactional id, or after a
// transaction that took too long for the brokers.
var ErrFenced = fmt.Errorf("another producer has the transactional id, or the transaction took too long: %w", ErrUnsettled)

// lateError is the ErrFenced of a transaction that was open for longer than brokers allow:
// brokers have aborted it, and no other producer is to blame, whatever the code says.
type lateError struct {
	open, allowed time.Duration
	throttled     time.Duration // out of open
	code          *kerr.Error
}

// Error implements error.
func (e *lateError) Error() string {
	text := fmt.Sprintf("the Kafka transaction was open for %s, and brokers abort it after %s", e.open.Round(time.Millisecond), e.allowed)
	if e.throttled > 0 {
		text += fmt.Sprintf("; in that time a quota made the connector wait for %s", e.throttled.Round(time.Millisecond))
	}
	return text + " (" + e.code.Message + ")"
}

// Is implements errors.Is.
func (e *lateError) Is(target error) bool { return target == ErrFenced || target == ErrUnsettled }

// Unwrap returns the brokers' error.
func (e *lateError) Unwrap() error { return e.code }

// outlived explains the error of a transaction that took too long.
func (x *Transactions) outlived(err error) error {
	code, _ := errors.AsType[*kerr.Error](err)
	late := &lateError{time.Since(x.begun), x.timeout, x.k.connections.throttledSince(x.begun), code}
	switch {
	case !errors.Is(err, ErrFenced), x.begun.IsZero(), late.open < late.allowed, code == nil:
		return err
	case late.throttled > 0:
		return &failure.Error{Class: failure.Transient, Remedy: x.k.cfg.Tools().RaiseQuota(), Err: late}
	}
	return late
}

// unsettled is the error of a transaction without a known end.
func unsettled(err error) error {
	kind := ErrUnsettled
	for _, fenced := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState} {
		if errors.Is(err, fenced) {
			kind = ErrFenced
		}
	}
	return fmt.Errorf("%w: %w", kind, err)
}
