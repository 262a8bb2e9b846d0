package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// write publishes the missing events. After an interruption a second repair finds
// what the first has published.
func (r *repair) write(ctx context.Context) error {
	told := r.publishing("events")
	err := r.rows.Missing(ctx, func(_ []audit.Entry, items []delivery.Item) error {
		told(r.report.Published+r.report.DeadLettered+r.report.Skipped, r.report.Missing)
		for _, it := range items {
			it.Event.SetMark(r.header, r.mark)
			if r.again != nil {
				it.Event.Record.Topic = r.again.topic(it.Event.Record.Topic)
			}
		}
		return r.out.write(ctx, items)
	})
	if err != nil {
		return err
	}
	return r.out.parked.unpublished()
}

// repaired counts for the report.
type repaired struct {
	uncounted
	*RepairReport
}

// Published implements delivery.Metrics.
func (r repaired) Published(events []*transform.Event) {
	r.RepairReport.Published += int64(len(events))
}

// DeadLettered implements delivery.Metrics.
func (r repaired) DeadLettered(transform.Reason) { r.RepairReport.DeadLettered++ }

// Skipped implements delivery.Metrics.
func (r repaired) Skipped(transform.Reason) { r.RepairReport.Skipped++ }
