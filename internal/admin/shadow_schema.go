package admin

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// encode gives the event's record the form of its schema, which is looked up and never
// registered. It waits for the registry, and for a missing schema, until ctx ends: the error
// is the end's.
func (s *shadowing) encode(ctx context.Context, ev *transform.Event) (*transform.BadEvent, error) {
	if s.encoder == nil {
		return nil, nil
	}
	retry := backoff.Series{Range: backoff.Range{First: 200 * time.Millisecond, Longest: 10 * time.Second}}
	for {
		known, err := s.encoder.Encode(ev)
		if !known {
			if err = s.encoder.Learn(ctx, ev); err == nil {
				continue
			}
		}
		if bad, isBad := errors.AsType[*transform.BadEvent](err); err == nil || isBad {
			s.waitsForSchema(nil)
			return bad, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.waitsForSchema(err)
		if err := retry.Pause(ctx); err != nil {
			return nil, err
		}
	}
}

// waitsForSchema notes why an event waits, and tells each new reason; nil: none waits.
func (s *shadowing) waitsForSchema(reason error) {
	text := ""
	if reason != nil {
		text = reason.Error() + "; " + failure.RemedyOf(reason)
	}
	s.mu.Lock()
	was := s.schema
	s.schema = text
	s.mu.Unlock()
	switch text {
	case was:
	case "":
		s.note("the schema is known, and the comparison goes on")
	default:
		s.note("waiting for a schema: %s", text)
	}
}
