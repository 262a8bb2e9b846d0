package stream

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
)

// candidateLooks are the pauses between two looks at the servers a failover may go
// to: while each has a copy of the slot, and while any has none.
type candidateLooks struct{ ready, unready time.Duration }

// watchCandidates looks at the candidates now and then, beside the stream begun with
// cp, on a goroutine and connections of its own: a silent server holds up nothing
// else. The returned function joins the goroutine.
func (s *source) watchCandidates(ctx context.Context, cp checkpoint.Checkpoint) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		looks, unready := s.limits.candidates, map[string]bool{} // at the last look
		for pause := time.Duration(0); backoff.Sleep(ctx, pause) == nil; {
			list, err := s.readCandidates(ctx, cp)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				s.log.Debug("cannot look at the servers that a failover may go to", zap.Error(err))
			}
			s.health.candidatesAre(list)
			pause = looks.ready
			for _, c := range list {
				bad := c.Judged() && !c.Ready()
				if bad && unready[c.Host] { // a copy takes a moment
					s.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "a failover to a server would not find the slot", Detail: c.Host + string(c.State)},
						zap.String("server", c.Host), zap.String("because", c.Text), zap.String("remedy", c.Remedy))
				}
				if unready[c.Host] = bad; bad {
					pause = looks.unready
				}
			}
		}
		s.health.candidatesAre(nil)
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// readCandidates is nil if the stream's server is alone.
func (s *source) readCandidates(ctx context.Context, cp checkpoint.Checkpoint) ([]catalog.Candidate, error) {
	candidates, err := catalog.FindCandidates(ctx, s.opts.URL, s.opts.Standbys)
	if err != nil || !candidates.Several() {
		return nil, err
	}
	conn, err := s.connectBeside(ctx, cp)
	if err != nil {
		return nil, err
	}
	defer catalog.Close(conn)
	return candidates.Read(ctx, conn, s.opts.Slot)
}

// candidatesAre notes how a failover would find the slot; nil: not known.
func (h *Health) candidatesAre(list []catalog.Candidate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.candidates = list
	h.metrics.Failover(list)
}
