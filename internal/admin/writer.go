package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// writer writes the events of a verb: with exactly_once in transactions of an id of
// its own.
type writer struct {
	plain    *sink.Kafka
	once     *sink.Transactions // with exactly_once, else plain is set
	encoder  *registry.Encoder  // nil: records are as they are
	values   *claimcheck.Keeper // nil: all values are in Kafka
	delivery *delivery.Delivery
	rate     int           // how many events a second are written at most; 0: no limit
	within   time.Duration // how long brokers may take for a group
	held     func(context.Context) error
	parked   *parkedKeys // nil: the delivery parks
}

// writerOptions are a writer's. All but rate, plain, held and parks are required.
type writerOptions struct {
	plain   bool   // the events are plain, and have to be encoded, and large ones kept, as configured
	suffix  string // of the transactional id
	policy  string // errors.on_bad_event
	metrics delivery.Metrics
	rate    int
	within  time.Duration
	note    func(string)
	// held is asked before each group whether the command is still alone; nil where the
	// session with the lock also reads each group.
	held func(context.Context) error
	// parks is for the policy to park bad events; nil where a connector may park, too.
	parks *delivery.Quarantine
}

// openWriter ends what an earlier command, left for dead, may still have on its way:
// with exactly_once it cannot commit any more.
func openWriter(ctx context.Context, cfg *config.Config, opts writerOptions) (*writer, error) {
	w := &writer{rate: opts.rate, within: opts.within, held: opts.held, delivery: delivery.New(delivery.Options{
		Policy: opts.policy, Remedy: func(*transform.Event, *transform.BadEvent) string {
			return "set errors.on_bad_event to dead_letter or skip, by --set, and repeat the command"
		},
		Metrics: opts.metrics, Digest: digest.New(zap.NewNop()), Quarantine: opts.parks,
	})}
	with := []sink.Option{sink.WithDeadLetterTopic(cfg.Errors.DeadLetterTopic), sink.WithObserver(waits{sink.Unobserved, cfg, opts.note})}
	if opts.parks == nil {
		w.parked = &parkedKeys{cfg: cfg}
	} else {
		with = append(with, sink.WithQuarantine(wiring.QuarantineTopic(cfg), opts.parks.Holds))
	}
	var err error
	if opts.plain {
		if w.encoder, err = wiring.Encoder(cfg); err != nil {
			return nil, err
		}
		if w.encoder != nil {
			with = append(with, sink.WithEncoder(w.encoder))
		}
	}
	if w.values, err = wiring.Values(cfg, nil); err != nil {
		return w, err
	}
	switch {
	case w.values == nil:
	case opts.plain:
		with = append(with, sink.WithValues(w.values))
	default:
		with = append(with, sink.WithValues(onlyRenewed{w.values}))
	}
	if wiring.ExactlyOnce(cfg) {
		w.once, err = claimed(ctx, cfg, opts.suffix, with...)
	} else {
		w.plain, err = sink.NewKafka(*cfg.Sink.Kafka, with...)
	}
	return w, err
}

// onlyRenewed takes no new value, and renews those of references.
type onlyRenewed struct{ *claimcheck.Keeper }

// Takes implements sink.Values.
func (onlyRenewed) Takes(int) bool { return false }

// close does nothing where openWriter failed.
func (w *writer) close() {
	if w == nil {
		return
	}
	w.encoder.Close()
	w.values.Close()
	switch {
	case w.once != nil:
		w.once.Close()
	case w.plain != nil:
		w.plain.Close()
	}
}

// write writes a group, at the rate, within the time. A refused item becomes bad, and so does
// an item of a parked key, without being written.
func (w *writer) write(ctx context.Context, items []delivery.Item) error {
	if w.rate > 0 {
		if err := backoff.Sleep(ctx, time.Duration(len(items))*time.Second/time.Duration(w.rate)); err != nil {
			return err
		}
	}
	if w.held != nil {
		if err := w.held(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.within, untaken(w.within))
	defer cancel()
	if err := w.parked.look(ctx); err != nil {
		return err
	}
	flowing := w.parked.flowing(items)
	n, at := len(flowing), func(i int) *delivery.Item { return &items[flowing[i]] }
	if n == 0 {
		return nil
	}
	if w.once == nil {
		_, err := w.delivery.Deliver(ctx, w.plain, n, at)
		return err
	}
	// Transactions are one for each run up to a bad event that stops.
	if err := w.delivery.Await(ctx, w.once, n, at, func() error { return nil }); err != nil {
		return err
	}
	_, err := w.delivery.Transact(ctx, w.once, n, at, func(int) (*kgo.Record, error) { return nil, nil })
	return err
}

// untaken is the error of a group that brokers did not take in time.
func untaken(within time.Duration) error {
	return &failure.Error{Class: failure.Transient, Remedy: "see `cdc-outbox check`, and repeat the command, which finds what was published until now",
		Err: fmt.Errorf("brokers have not taken the events within %s", within)}
}

// interrupted gives the error of an interrupted command its remedy, unless it has another.
// A repetition finds the records published until then.
func interrupted(err error) error {
	if err == nil || failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) != "" {
		return err
	}
	return &failure.Error{Class: failure.Transient, Remedy: "repeat the command, which finds what was published until now", Err: err}
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

// SchemaWaiting implements sink.Observer.
func (w waits) SchemaWaiting(reason error) {
	if reason != nil {
		w.note("waiting for a schema: " + reason.Error() + "; " + failure.RemedyOf(reason))
	}
}

// ValuesWaiting implements sink.Observer.
func (w waits) ValuesWaiting(reason error) {
	if reason != nil {
		w.note("waiting for the claim store: " + reason.Error() + "; " + failure.RemedyOf(reason))
	}
}

// Refused implements sink.Observer.
func (w waits) Refused(reason, remedy string) {
	if reason != "" {
		w.note("brokers refuse records: " + reason + "; " + remedy)
	}
}

// uncounted is told of outcomes that are counted elsewhere.
type uncounted struct{}

// Published implements delivery.Metrics.
func (uncounted) Published([]*transform.Event) {}

// DeadLettered implements delivery.Metrics.
func (uncounted) DeadLettered(transform.Reason) {}

// Skipped implements delivery.Metrics.
func (uncounted) Skipped(transform.Reason) {}

// Warned implements delivery.Metrics.
func (uncounted) Warned(transform.Warning) {}
