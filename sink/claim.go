package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// claimPatience bounds a claim: an earlier owner's open transaction is aborted first.
const claimPatience = 30 * time.Second

// Claim gets the transactional id, and aborts an earlier owner's open transaction.
// Call Claim once, before all other methods but Usable.
func (x *Transactions) Claim(ctx context.Context) error {
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	limited, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	retry := backoff.Series{Range: waits}
	for refused := 1; ; refused++ {
		_, _, err := x.k.client.ProducerID(limited)
		if err == nil {
			return nil
		}
		if broker.MayPass(err) || refused == broker.Refusals {
			return x.k.stop(ctx, x.unclaimed(err))
		}
		// The client keeps a refusal: only a new client asks again.
		if err := x.k.replaceClient(); err != nil {
			return err
		}
		if err := retry.Pause(limited); err != nil {
			return x.k.stop(ctx, err)
		}
	}
}

// unclaimed is the error of a failed claim.
func (x *Transactions) unclaimed(err error) error {
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		err = failure.Configf(x.k.cfg.Tools().AllowTransactions(x.id), "%w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kerr.ConcurrentTransactions):
		err = &failure.Error{Class: failure.Transient, Remedy: "cdc-outbox txn list; " + x.k.cfg.Tools().Coordinator(x.id),
			Err: fmt.Errorf("brokers have not granted it within %s: they have not ended the transaction before: %w", claimPatience, err)}
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		err = x.timeoutRefused(err)
	}
	return fmt.Errorf("claim transactional id %q: %w", x.id, err)
}
