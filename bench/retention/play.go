package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

const (
	// unmeasuredEnd of a phase may wait for the next connector.
	unmeasuredEnd = time.Second
	// looking is how often the table is looked at.
	looking = 2 * time.Second
)

// phase is a single run of the connector.
type phase struct {
	retention bool
	published []time.Duration // commit to consumer, sorted
	committed []time.Duration // how long the writers' transactions took, sorted
	from, to  int64           // everything measured
	last      size
	peak      size      // the most of each
	events    int64     // committed in the whole phase, about
	used      rig.Usage // by the connector
}

// play plays the traffic through all phases, and reports.
func (s *stage) play(ctx context.Context) error {
	t, err := s.startTraffic(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	var all []phase
	for range s.pairs {
		for _, retention := range []bool{false, true} { // always in this order: each phase finds the rows left by the phase before
			p, err := s.playPhase(ctx, t, retention)
			if err != nil {
				return fmt.Errorf("phase %d: %w", len(all)+1, err)
			}
			p.published = s.log.latencies(p.from, p.to)
			slices.Sort(p.published)
			all = append(all, p)
			fmt.Printf("phase %d, %s\n", len(all), p)
		}
	}
	if err := s.finish(ctx, t); err != nil {
		return err
	}
	for i := range all {
		all[i].committed = t.commitTimes(all[i].from, all[i].to)
	}
	return s.report(all)
}

// playPhase runs the connector for a phase.
func (s *stage) playPhase(ctx context.Context, t *traffic, retention bool) (p phase, err error) {
	p.retention = retention
	c, err := s.startConnector(retention)
	if err != nil {
		return p, err
	}
	first := s.log.known()
	defer func() {
		var stopped error
		p.events = s.log.known() - first
		p.used, stopped = c.Stop()
		err = errors.Join(err, stopped)
	}()
	end := time.Now().Add(s.phase())
	p.from = s.log.now() + int64(s.skip)
	p.to = s.log.now() + int64(s.phase()-unmeasuredEnd)
	for left := time.Until(end); left > 0; left = time.Until(end) {
		if err := backoff.Sleep(ctx, min(left, looking)); err != nil {
			return p, err
		}
		if err := t.err(); err != nil {
			return p, err
		}
		if err := c.Alive(ctx); err != nil {
			return p, c.Explain(err)
		}
		if p.last, err = s.lookAtTable(ctx); err != nil {
			return p, err
		}
		if n := p.last.unreceived; n >= 0 {
			return p, fmt.Errorf("row %d is gone and was not received", n)
		}
		p.peak.bytes, p.peak.dead, p.peak.rows = max(p.peak.bytes, p.last.bytes), max(p.peak.dead, p.last.dead), max(p.peak.rows, p.last.rows)
	}
	return p, nil
}

// finish stops the writers, and has the connector publish the rest.
func (s *stage) finish(ctx context.Context, t *traffic) error {
	t.stop()
	t.done.Wait()
	c, err := s.startConnector(true)
	if err != nil {
		return err
	}
	const patience = time.Minute
	for end := time.Now().Add(patience); s.log.missing() > 0 && time.Now().Before(end) && err == nil; {
		err = backoff.Sleep(ctx, 100*time.Millisecond)
	}
	_, stopped := c.Stop()
	t.leave()
	t.reading.Wait()
	return errors.Join(err, stopped)
}

// commitTimes are of the transactions in the time, sorted. The writers have been
// stopped.
func (t *traffic) commitTimes(from, to int64) []time.Duration {
	var list []time.Duration
	for _, commits := range t.commits {
		for _, c := range commits {
			if c.at >= from && c.at < to {
				list = append(list, c.took)
			}
		}
	}
	slices.Sort(list)
	return list
}

// verdict judges everything written and received.
func (s *stage) verdict() *checker.Report {
	return checker.Verify(checker.History{Transactions: s.log.ledger.Transactions(), Records: s.log.records})
}
