package admin

import (
	"bytes"
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/shadow"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// follow reads the log until ctx ends. A lost connection takes the temporary slot along: the next
// slot begins later, and commits between the two are not compared.
func (s *shadowing) follow(ctx context.Context) error {
	waits := backoff.Series{Range: backoff.Range{First: time.Second, Longest: 15 * time.Second}}
	for {
		began := time.Now()
		err := s.stream(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !passing(err) {
			return err
		}
		s.trouble("PostgreSQL, our reader", err)
		if time.Since(began) > time.Minute {
			waits.Reset()
		}
		if waits.Pause(ctx) != nil {
			return nil
		}
	}
}

// stream reads through a single slot.
func (s *shadowing) stream(ctx context.Context) error {
	opened, err := open(ctx, s.cfg)
	if err != nil {
		return err
	}
	defer opened.close()
	wake := context.AfterFunc(ctx, func() { // a wait for room ends
		s.mu.Lock()
		defer s.mu.Unlock()
		s.room.Broadcast()
	})
	defer wake()
	defer s.named("")
	t := &tail{session: opened, opts: TailOptions{Notes: s}, out: s, verb: "shadow", began: s.began, passed: s.passed}
	defer opened.patient(ctx, opened.conn.PgConn(), nil)()
	return t.fromStream(ctx)
}

func (s *shadowing) named(slot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slot = slot
}

func (s *shadowing) began(slot string, at pg.LSN) {
	s.named(slot)
	s.note("events committed after %s are compared, through the temporary slot %s", at, slot)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.Begin(at)
}

func (s *shadowing) passed(ctx context.Context, end pg.LSN) error {
	if s.sender != nil {
		if err := s.sender.flush(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.Passed(end)
	return nil
}

// print takes an event, once there is room. The server hears of us meanwhile.
func (s *shadowing) print(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) (err error) {
	if bad == nil {
		if bad, err = s.encode(ctx, ev); err != nil {
			return err
		}
	}
	rec := copied(&ev.Record)
	rec.Timestamp = ev.Asked
	taken := shadow.Event{Record: rec, At: ev.Position}
	if bad != nil {
		taken.Bad = string(bad.Reason)
	}
	if err := s.take(ctx, taken); err != nil || bad != nil || s.sender == nil {
		return err
	}
	return s.sender.send(ctx, ev)
}

func (s *shadowing) take(ctx context.Context, ev shadow.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if full, _ := s.c.Full(); !full {
			s.state.Waiting = false
			s.c.Ours(ev)
			return nil
		}
		s.state.Waiting = true
		s.room.Wait()
	}
}

// copied has memory of its own.
func copied(r *kgo.Record) *kgo.Record {
	c := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Headers: make([]kgo.RecordHeader, len(r.Headers))}
	for i, h := range r.Headers {
		c.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: bytes.Clone(h.Value)}
	}
	return c
}
