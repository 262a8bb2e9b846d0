package pipeline

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/repair"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// newRepairer makes the parts of errors.on_loss: repair.
func (p *pipeline) newRepairer() (*repair.Repairer, error) {
	kafka := *p.cfg.Sink.Kafka
	opts := repair.Options{
		Tables:      p.cfg.Source.Tables,
		Publication: p.cfg.Source.Publication,
		Event:       p.cfg.Event,
		Route:       p.cfg.Route,
		OnBadEvent:  p.cfg.Errors.OnBadEvent,
		Times:       []string{p.cfg.Retention.Column, p.cfg.Event.Timestamp},
		Retention:   p.cfg.Retention.After > 0,
		Dial: func() (*kgo.Client, error) {
			opts, err := sink.ClientOpts(kafka)
			if err != nil {
				return nil, err
			}
			return broker.Connect(opts...)
		},
		Allow: func(topic string) string { return kafka.Tools().Allow("Read --operation DescribeConfigs", topic) },
		Log:   p.log,
	}
	if p.cfg.Errors.OnBadEvent == transform.BadEventDeadLetter {
		opts.DeadLetters = p.cfg.Errors.DeadLetterTopic
	}
	if wiring.ExactlyOnce(p.cfg) {
		opts.End = p.endRepairs
	}
	return repair.New(opts)
}

// endRepairs fences an operator's repair off: with the lock, nobody else repairs, but an
// earlier command without the lock may still have a transaction open.
func (p *pipeline) endRepairs(ctx context.Context) error {
	id, err := wiring.TransactionalID(p.cfg)
	if err != nil {
		return err
	}
	out, err := sink.NewTransactions(*p.cfg.Sink.Kafka, id+"/"+catalog.RepairVerb)
	if err != nil {
		return err
	}
	defer out.Close()
	return out.Claim(ctx)
}
