package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
)

// asked is how many times as long the latency may be with retention.
const asked = 1.5

func (p phase) name() string {
	if p.retention {
		return "with retention   "
	}
	return "without retention"
}

func (p phase) String() string {
	return fmt.Sprintf("%s: commit to consumer p50 %s, p99 %s of %d events; table %s at the end, at most %s, %d rows, at most %d dead; connector %.1f µs CPU/event",
		p.name(), round(figures.Percentile(p.published, 50)), round(figures.Percentile(p.published, 99)), len(p.published),
		mebibytes(p.last.bytes), mebibytes(p.peak.bytes), p.last.rows, p.peak.dead,
		p.used.CPU.Seconds()*1e6/max(1, float64(p.events)))
}

// report prints the phases' results, and returns an error for a loss or an unexpected
// result.
func (s *stage) report(all []phase) error {
	var ratios, commitRatios []float64
	var pooled, pooledCommits [2][]time.Duration
	for i := 0; i < len(all); i += 2 {
		without, with := all[i], all[i+1]
		ratios = append(ratios, ratio(with.published, without.published))
		commitRatios = append(commitRatios, ratio(with.committed, without.committed))
	}
	for _, p := range all {
		kind := 0
		if p.retention {
			kind = 1
		}
		pooled[kind] = append(pooled[kind], p.published...)
		pooledCommits[kind] = append(pooledCommits[kind], p.committed...)
	}
	for kind := range pooled {
		slices.Sort(pooled[kind])
		slices.Sort(pooledCommits[kind])
	}
	half := len(all) / 4 * 2 // whole pairs
	early, late := largest(all[:half]), largest(all[half:])
	verdict := s.verdict()

	fmt.Printf("p99 commit to consumer, with to without: median of %d pairs %.2f %.2f, all events %s to %s = %.2f (asked: at most %.1f)\n",
		len(ratios), figures.Median(ratios), ratios, round(figures.Percentile(pooled[1], 99)), round(figures.Percentile(pooled[0], 99)), ratio(pooled[1], pooled[0]), asked)
	fmt.Printf("p99 of the writers' transactions: median %.2f, all %s to %s\n",
		figures.Median(commitRatios), round(figures.Percentile(pooledCommits[1], 99)), round(figures.Percentile(pooledCommits[0], 99)))
	fmt.Printf("largest table: %s in the first half, %s in the second, of %s written\n",
		mebibytes(early), mebibytes(late), mebibytes(int64(verdict.Committed*(s.payload+150))))
	fmt.Printf("checker: %s; no row went before it was received\n", verdict)
	if err := verdict.Err(); err != nil {
		return err
	}
	if r := figures.Median(ratios); r > asked {
		return fmt.Errorf("the p99 with retention is %.2f times that without", r)
	}
	const settled = 4 // pairs: the first begins with nothing
	if s.pairs >= settled && float64(late) > 1.2*float64(early) {
		return errors.New("the table grows")
	}
	return nil
}

func largest(phases []phase) (bytes int64) {
	for _, p := range phases {
		bytes = max(bytes, p.peak.bytes)
	}
	return bytes
}

func ratio(with, without []time.Duration) float64 {
	return float64(figures.Percentile(with, 99)) / float64(max(1, figures.Percentile(without, 99)))
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
