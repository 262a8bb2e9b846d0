package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/shadow"
)

// roundPatience bounds the questions of a round, and each read of a partition's rest.
const roundPatience = time.Minute

// rounds looks at both sides until ctx ends, or nothing comes any more.
func (s *shadowing) rounds(ctx context.Context) error {
	var (
		failing bool
		quiet   = time.Now()
		before  int64
	)
	for {
		err := s.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (errors.Is(err, errOver) || !passing(err)):
			return err
		case err != nil && !failing:
			s.trouble("a round", err)
		}
		failing = err != nil
		r := s.report()
		if now := r.Ours + r.Theirs; now != before || failing {
			before, quiet = now, time.Now()
		}
		if rest := time.Since(quiet); s.opts.UntilIdle && (rest > idleAfterPending || rest > idleAfter && r.Pending == 0 && r.Starts > 0 && r.Schema == "") {
			return nil
		}
		if backoff.Sleep(ctx, shadowPace) != nil {
			return nil
		}
	}
}

// errOver is wrapped by the error that ends a comparison over its slot's log.
var errOver = errors.New("too much of the log is kept")

// round puts the questions in the order that shadow.Round wants, reads, and settles.
func (s *shadowing) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, roundPatience, fmt.Errorf("no answer within %s", roundPatience))
	defer cancel()
	var r shadow.Round
	err := s.ask(ctx, &r)
	if err != nil && s.conn != nil && s.conn.conn.IsClosed() {
		s.conn = nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	for place := range r.Ends {
		s.c.Partitions(place.Topic, len(s.theirs.topics[place.Topic].logs))
	}
	for _, topic := range s.theirs.lost {
		s.c.Lost(topic, r.Flushed)
	}
	s.theirs.lost = nil
	s.mu.Unlock()
	r.Whole, err = s.theirs.read(ctx, s.takeTheirs)
	s.await(ctx, r.Flushed)
	s.mu.Lock()
	s.c.Settle(r)
	s.topics = s.theirs.names()
	s.state.Compacted = s.theirs.compacted()
	s.room.Broadcast()
	s.mu.Unlock()
	s.askWorker(ctx)
	return err
}

// ask asks for the positions and ends of the round.
func (s *shadowing) ask(ctx context.Context, r *shadow.Round) (err error) {
	if s.conn == nil {
		if s.conn, err = open(ctx, s.cfg); err != nil {
			s.conn = nil
			return err
		}
	}
	conn := s.conn.conn
	debezium, exists, err := catalog.ReadSlot(ctx, conn, s.opts.Slot)
	if err != nil {
		return err
	}
	r.Confirmed = debezium.ConfirmedFlush
	if err := s.theirs.open(ctx, r); err != nil {
		return fmt.Errorf("read Debezium's topics: %w", err)
	}
	if r.Flushed, err = catalog.ReadFlushed(ctx, conn); err != nil {
		return err
	}
	s.mu.Lock()
	slot := s.slot
	s.mu.Unlock()
	var own catalog.Slot
	if slot != "" {
		if own, _, err = catalog.ReadSlot(ctx, conn, slot); err != nil {
			return err
		}
	}
	kept := retained(own, r.Flushed)
	s.see(debezium, exists, kept, r.Flushed)
	if s.opts.MaxRetained > 0 && kept > s.opts.MaxRetained {
		return errRetained(slot, kept, s.opts.MaxRetained)
	}
	return nil
}

// see notes the state of both slots, and tells when Debezium leaves or returns.
func (s *shadowing) see(debezium catalog.Slot, exists bool, kept int64, end pg.LSN) {
	s.mu.Lock()
	was := s.state
	state := &s.state
	state.Slot, state.Exists, state.Active, state.Confirmed, state.Retained = s.opts.Slot, exists, debezium.Active, debezium.ConfirmedFlush.String(), kept
	state.Lag = 0
	if exists && end > debezium.ConfirmedFlush {
		state.Lag = int64(end - debezium.ConfirmedFlush)
	}
	if debezium.Active {
		state.Since = time.Time{}
	} else if state.Since.IsZero() {
		state.Since = time.Now()
	}
	s.mu.Unlock()
	switch {
	case was.Exists && !exists:
		s.note("slot %s, Debezium's, was dropped: nothing tells any more what Debezium has published", s.opts.Slot)
	case was.Active && !debezium.Active:
		s.note("Debezium does not read slot %s any more: it has stopped, or starts again", s.opts.Slot)
	case !was.Active && debezium.Active && !was.Since.IsZero():
		s.note("Debezium reads slot %s again", s.opts.Slot)
	}
}

// takeTheirs takes records of Debezium's, and tells whether there is room for more.
func (s *shadowing) takeTheirs(records []*kgo.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		s.c.Theirs(r)
	}
	_, full := s.c.Full()
	return !full
}

// await gives our reader a moment to pass the position.
func (s *shadowing) await(ctx context.Context, at pg.LSN) {
	for range 20 {
		s.mu.Lock()
		full, _ := s.c.Full()
		over := full || s.slot == "" || s.c.HasPassed(at)
		s.mu.Unlock()
		if over || backoff.Sleep(ctx, shadowPace/10) != nil {
			return
		}
	}
}

// askWorker asks the Connect worker, now and then.
func (s *shadowing) askWorker(ctx context.Context) {
	if s.opts.State == nil || time.Since(s.asked) < stateEach {
		return
	}
	s.asked = time.Now()
	text, _, err := s.opts.State(ctx)
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	was := s.state.Connector
	s.state.Connector = text
	s.mu.Unlock()
	if text != was {
		s.note("Kafka Connect: %s", text)
	}
}
