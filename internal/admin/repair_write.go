package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// write publishes the missing events. After an interruption a second repair finds
// what the first has published.
func (r *repair) write(ctx context.Context) error {
	if r.report.Missing == 0 {
		return nil
	}
	d := delivery.New(delivery.Options{
		Policy: r.cfg.Errors.OnBadEvent, Remedy: func(*transform.Event, *transform.BadEvent) string {
			return "set errors.on_bad_event to dead_letter or skip, by --set, and repeat the command"
		},
		Metrics: repaired{r.report}, Digest: digest.New(zap.NewNop()),
	})
	deliver, closeSink, err := r.sink(ctx, d)
	if err != nil {
		return err
	}
	defer closeSink()
	return r.rows.Missing(ctx, func(_ []audit.Entry, items []delivery.Item) error {
		for _, it := range items {
			it.Event.SetMark(r.header, r.mark)
			if r.again != nil {
				it.Event.Record.Topic = r.again.topic(it.Event.Record.Topic)
			}
		}
		return paced(ctx, len(items), r.rate, r.opts.Timeout, func(ctx context.Context) error {
			return deliver(ctx, len(items), func(i int) *delivery.Item { return &items[i] })
		})
	})
}

// paced delivers a group of n events, at rate a second at most (0: no limit), within
// the time.
func paced(ctx context.Context, n, rate int, within time.Duration, deliver func(context.Context) error) error {
	if rate > 0 {
		if err := backoff.Sleep(ctx, time.Duration(n)*time.Second/time.Duration(rate)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, untaken(within))
	defer cancel()
	return deliver(ctx)
}

// deliver writes a group of events.
type deliver func(ctx context.Context, n int, at func(int) *delivery.Item) error

// untaken is the error of a group that brokers did not take in time.
func untaken(within time.Duration) error {
	return &failure.Error{Class: failure.Transient, Remedy: "see `cdc-outbox check`, and repeat the command, which finds what was published until now",
		Err: fmt.Errorf("brokers have not taken the events within %s", within)}
}

// waits notes what a delivery waits for.
type waits struct {
	sink.Observer // which does nothing
	cfg           *config.Config
	note          func(string)
}

// TopicWaiting implements sink.Observer.
func (w waits) TopicWaiting(topic string, waiting bool) {
	if waiting {
		w.note(fmt.Sprintf("waiting for topic %q, which does not exist: %s", topic, sink.CreateCommand(*w.cfg.Sink.Kafka, topic)))
	}
}

// Refused implements sink.Observer.
func (w waits) Refused(reason, remedy string) {
	if reason != "" {
		w.note("brokers refuse records: " + reason + "; " + remedy)
	}
}

// sink opens what the events are written by: with exactly_once in transactions
// of an id of its own, so that a repair that was left for dead cannot write any
// more.
func (r *repair) sink(ctx context.Context, d *delivery.Delivery) (deliver deliver, closeSink func(), err error) {
	opts := []sink.Option{sink.WithDeadLetterTopic(r.cfg.Errors.DeadLetterTopic), sink.WithObserver(waits{sink.Unobserved, r.cfg, r.note})}
	if !wiring.ExactlyOnce(r.cfg) {
		out, err := sink.NewKafka(*r.cfg.Sink.Kafka, opts...)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, n int, at func(int) *delivery.Item) error {
			_, err := d.Deliver(ctx, out, n, at)
			return err
		}, out.Close, nil
	}
	out, err := claimed(ctx, r.cfg, "/"+r.verb, opts...)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, n int, at func(int) *delivery.Item) error {
		return transact(ctx, d, out, n, at)
	}, out.Close, nil
}

// transact writes a group in transactions, one for each run up to a bad event
// that stops.
func transact(ctx context.Context, d *delivery.Delivery, out *sink.Transactions, n int, at func(int) *delivery.Item) error {
	if err := d.Await(ctx, out, n, at, func() error { return nil }); err != nil {
		return err
	}
	_, err := d.Transact(ctx, out, n, at, func(int) (*kgo.Record, error) { return nil, nil })
	return err
}

// repaired counts for the report.
type repaired struct{ *RepairReport }

// Published implements delivery.Metrics.
func (r repaired) Published(events []*transform.Event) {
	r.RepairReport.Published += int64(len(events))
}

// DeadLettered implements delivery.Metrics.
func (r repaired) DeadLettered(transform.Reason) { r.RepairReport.DeadLettered++ }

// Skipped implements delivery.Metrics.
func (r repaired) Skipped(transform.Reason) { r.RepairReport.Skipped++ }

// Warned implements delivery.Metrics.
func (repaired) Warned(transform.Warning) {}
