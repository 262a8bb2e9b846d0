package stream

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

// acknowledged knows the brokers' acknowledgements, also from before a start.
type acknowledged interface {
	Ends() checkpoint.Ends
	Compare(ctx context.Context, ends checkpoint.Ends) error
}

// claimant gets a transactional id, and finds the outcome of an earlier owner's
// transactions.
type claimant interface {
	Usable(ctx context.Context) error
	Claim(ctx context.Context) error
	Recall(ctx context.Context, doubtful []checkpoint.Doubtful) (torn []checkpoint.Doubtful, err error)
	Settled()
}

// Transactor writes events in transactions, as sink.Transactions does.
type Transactor interface {
	claimant
	acknowledged
	delivery.Transactor
	Next() time.Time
	Prepare(ctx context.Context) error
	Close()
}
