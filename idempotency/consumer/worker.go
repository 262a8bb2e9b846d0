package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// work processes records until the scheduler is closed.
func (s *session) work() {
	for {
		j, ok := s.scheduler.next()
		if !ok {
			return
		}
		for next := &j; next != nil; {
			next = s.do(*next)
		}
	}
}

// do does a job. do returns the next job, if known.
func (s *session) do(j job) (next *job) {
	d := &delivery{record: j.record, pending: j.pending}
	if len(s.cfg.Middleware) == 0 || s.cfg.MiddlewareKeepsRecords {
		d.turn, d.next = &j.turn, func(own bool) *kgo.Record { return s.scheduler.following(&j, own) }
	}
	if j.probe {
		d.started = func() { s.reachable(s.scheduler.started(j)) }
	}
	begun := time.Now()
	result, err := s.attempt(withDelivery(j.ctx, d), j.record)
	s.cfg.Observer.processed(j.record, result, err, begun)
	if c := j.turn.Claimed; c != nil { // a middleware has kept the record from the Runner
		c.Drop(j.ctx)
	}
	if c := j.turn.Following; c != nil && j.next == nil && !result.Done() { // or the result from us
		c.Drop(j.ctx)
	}
	done := s.scheduler.settle(j, result)
	s.reachable(done.closed)
	if !result.Done() || result.Disposition == idempotency.DeadLettered {
		s.tell(j, result, err, done)
	}
	if done.room {
		s.room.resume()
	}
	return done.next
}

// attempt processes the record. The Runner recovers the handler's panics; those
// of middlewares and of functions reading a record are attempt's.
func (s *session) attempt(ctx context.Context, r *kgo.Record) (result idempotency.Result, err error) {
	panicked := usercode.Call(func() error {
		result, err = s.process(ctx, r)
		return nil
	})
	if panicked != nil {
		return idempotency.Result{Disposition: idempotency.Retry}, panicked
	}
	return result, err
}

func (s *session) reachable(closed bool) {
	if closed {
		s.cfg.Logger.Info("the idempotency store answers again")
	}
}

// tell logs the outcome of a record, unless handled normally.
func (s *session) tell(j job, result idempotency.Result, err error, done settlement) {
	r := j.record
	log := s.cfg.Logger.With("topic", r.Topic, "partition", r.Partition, "offset", r.Offset)
	if p, ok := errors.AsType[*usercode.Panic](err); ok {
		log = log.With("stack", string(p.Stack()))
	}
	switch {
	case result.Disposition == idempotency.DeadLettered:
		log.Warn("record is given up, its dead letter is written", "attempt", result.Attempt, "reason", result.Reason)
	case j.ctx.Err() != nil:
		log.Info("handling was cut off", "cause", context.Cause(j.ctx), "error", err)
	case errors.Is(err, storage.ErrDeadLetter):
		log.Error("the record's dead letter cannot be written, and what is behind the record waits", "wait", done.wait, "error", err)
	case result.Disposition == idempotency.Elsewhere:
		log.Info("record is being handled elsewhere", "wait", done.wait)
	case result.Disposition == idempotency.Unavailable:
		if done.opened {
			log.Error("the idempotency store cannot be asked, all partitions wait", "error", err)
		} else {
			log.Warn("the idempotency store gives no answer about this record, it is asked again", "wait", done.wait, "error", err)
		}
	case result.Disposition == idempotency.NotDue:
		log.Info("record is not due yet", "wait", done.wait)
	default:
		log.Warn("record is not finished, it is tried again", "disposition", result.Disposition.String(),
			"attempt", result.Attempt, "wait", done.wait, "error", err)
	}
}
