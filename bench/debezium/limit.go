package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

const limitName = "pg_recvlogical"

// limit is pg_recvlogical, which reads the backlog and throws it away: as fast as
// one walsender is read.
func (s *stage) limit(ctx context.Context, b backlog) (map[string]float64, error) {
	const slot = "bench_limit"
	if err := s.db.copySlot(ctx, b, slot); err != nil {
		return nil, err
	}
	values, err := s.recvlogical(ctx, slot, b)
	return values, errors.Join(err, s.db.dropSlot(slot))
}

func (s *stage) recvlogical(ctx context.Context, slot string, b backlog) (map[string]float64, error) {
	bin, err := pgserver.Find()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, backlogLimit, fmt.Errorf("pg_recvlogical took more than %s", backlogLimit))
	defer cancel()
	cmd := exec.Command(filepath.Join(bin, "pg_recvlogical"),
		"--dbname", s.db.url, "--slot", slot, "--start", "--file", "/dev/null", "--no-loop",
		"--endpos", b.end, "--option", "proto_version=1", "--option", "publication_names="+publication)
	began := time.Now()
	p, err := startProcess(s.dir, "pg_recvlogical", cmd)
	if err != nil {
		return nil, err
	}
	defer p.kill()
	// Its peak as wait4(2) tells it would be ours: a child begins with its parent's.
	peak := 0.0
	for tick := time.NewTicker(looking); ; {
		select {
		case <-tick.C:
			if u, err := measure(p.pid); err == nil { // it may just have ended
				peak = u.peak
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.child.Exited():
			took := time.Since(began)
			if !cmd.ProcessState.Success() {
				return nil, p.explain(fmt.Errorf("pg_recvlogical: %s", cmd.ProcessState))
			}
			return map[string]float64{
				metricRate: float64(b.events) / took.Seconds(),
				metricCPU:  micros(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()) / float64(b.events),
				metricPeak: peak,
				metricLast: millis(took),
			}, nil
		}
	}
}
