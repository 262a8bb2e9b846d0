package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// Verify compares the rows of the outbox with the records in Kafka, by event id,
// as Repair does, and publishes nothing.
func Verify(ctx context.Context, cfg *config.Config, opts AuditOptions) (*Audit, error) {
	a, err := newAuditor(ctx, "verify", cfg, opts)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if err := a.compare(ctx); err != nil {
		return nil, err
	}
	return a.result, a.result.verdict()
}

// verdict is nil if all events are in Kafka, for certain.
func (r *Audit) verdict() error {
	switch {
	case r.Missing > 0:
		return failure.Lossf("cdc-outbox repair, which publishes them after --publish", "%d of %d events are not in Kafka", r.Missing, r.Rows)
	case r.Unknown > 0:
		return failure.Configf("narrow the time by --since to what the topics keep", "of %d of %d events nothing is known", r.Unknown, r.Rows)
	}
	return nil
}
