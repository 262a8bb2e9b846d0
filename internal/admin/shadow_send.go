package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// shadowBatch is how many events are delivered at a time, at most.
const shadowBatch = 500

// shadowSender publishes the events of a comparison under other topics.
type shadowSender struct {
	to     *sink.Kafka
	values *claimcheck.Keeper // nil: all values are in Kafka
	prefix string
	note   func(string, ...any)
	batch  []*transform.Event
}

func newShadowSender(cfg *config.Config, prefix string, note func(string, ...any)) (*shadowSender, error) {
	kafka := *cfg.Sink.Kafka
	kafka.Delivery = sink.DeliveryAtLeastOnce // no checkpoint goes along
	s := &shadowSender{prefix: prefix, note: note}
	with := []sink.Option{sink.WithObserver(waits{sink.Unobserved, cfg, func(line string) { note("%s", line) }})}
	var err error
	if s.values, err = wiring.Values(cfg, nil); err != nil {
		return nil, err
	}
	if s.values != nil {
		with = append(with, sink.WithValues(s.values))
	}
	if s.to, err = sink.NewKafka(kafka, with...); err != nil {
		s.values.Close()
		return nil, err
	}
	return s, nil
}

func (s *shadowSender) close() {
	s.to.Close()
	s.values.Close()
}

// send delivers the event with those before, once there are enough.
func (s *shadowSender) send(ctx context.Context, ev *transform.Event) error {
	rec := *copied(&ev.Record)
	rec.Topic = s.prefix + rec.Topic
	sent := &transform.Event{Record: rec, Table: ev.Table, ID: ev.ID, Position: ev.Position, XID: ev.XID, CommitTime: ev.CommitTime, Asked: ev.Asked}
	if ev.Encoded() {
		sent.Encode(rec.Key, rec.Value)
	}
	if s.batch = append(s.batch, sent); len(s.batch) < shadowBatch {
		return nil
	}
	return s.flush(ctx)
}

// flush delivers all events so far.
func (s *shadowSender) flush(ctx context.Context) error {
	if len(s.batch) == 0 {
		return nil
	}
	batch := s.batch
	s.batch = nil
	return s.to.Deliver(ctx, batch, func(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		s.note("the broker refuses an event for topic %s: %v", ev.Record.Topic, bad)
		return nil
	})
}
