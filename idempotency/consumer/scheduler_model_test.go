package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// TestSchedulerUnderRandomOutcomes has workers with a store that comes and goes,
// and partitions taken away and given back, on a jumping clock: a forgotten worker
// would be found as a deadlock.
func TestSchedulerUnderRandomOutcomes(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newSimulation(t, seed).run() })
		})
	}
}

const simulatedRecords = 40 // of each partition

// simulation is a scheduler with the workers and a broker.
type simulation struct {
	*testing.T
	scheduler *scheduler
	mu        sync.Mutex
	random    *rand.Rand
	calm      bool            // nothing fails any more
	running   map[string]bool // lanes
	done      map[string]bool // records
	committed map[int32]int64 // where a new owner begins
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	random := rand.New(rand.NewPCG(seed, 0))
	cfg := &Config{
		KeyOrder: random.IntN(2) == 1, Concurrency: 1 + random.IntN(4), MaxBufferedRecords: 10, MaxBufferedBytes: 1 << 20,
		BackoffFirst: time.Second, BackoffLongest: time.Minute,
	}
	s := &simulation{
		T: t, scheduler: newScheduler(t.Context(), cfg), random: random,
		running: map[string]bool{}, done: map[string]bool{}, committed: map[int32]int64{},
	}
	return s
}

func (s *simulation) run() {
	var workers sync.WaitGroup
	for range 1 + s.random.IntN(4) {
		workers.Go(s.work)
	}
	const partitions = 3
	for n := range int32(partitions) {
		s.assign(n)
	}
	for range 30 {
		s.pause()
		s.revoke(int32(s.number(partitions)))
	}
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	<-time.After(time.Hour)
	for n := range int32(partitions) {
		if at := s.scheduler.uncommitted(nil)["orders"][n].Offset; max(at, s.committed[n]) != simulatedRecords {
			s.Errorf("partition %d got to %d, from %d", n, at, s.committed[n])
		}
	}
	s.scheduler.close()
	workers.Wait()
}

func (s *simulation) number(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *simulation) pause() { <-time.After(time.Duration(s.number(3000)) * time.Millisecond) }

// assign adds a partition's records from the committed offset.
func (s *simulation) assign(n int32) {
	var records []*kgo.Record
	for o := s.committed[n]; o < simulatedRecords; o++ {
		records = append(records, &kgo.Record{Topic: "orders", Partition: n, Offset: o, Key: []byte{byte(o % 3)}})
	}
	if len(records) > 0 {
		s.scheduler.add(partitionID{"orders", n}, records)
	}
}

// revoke takes a partition away and gives the partition back.
func (s *simulation) revoke(n int32) {
	ids := map[string][]int32{"orders": {n}}
	parts := s.scheduler.closePartitions(ids)
	if _, stuck := s.scheduler.settleRunning(parts, time.Second, time.Minute, errRevoked); stuck > 0 {
		s.Errorf("%d handlers are stuck", stuck)
	}
	if at, ok := s.scheduler.uncommitted(ids)["orders"][n]; ok {
		for o := range at.Offset {
			if !s.finished(n, o) {
				s.Errorf("offset %d is committed before %d/%d is finished", at.Offset, n, o)
			}
		}
		s.committed[n] = at.Offset
	}
	s.scheduler.forget(parts)
	s.assign(n)
}

func (s *simulation) finished(n int32, offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[fmt.Sprint(n, "@", offset)]
}

func (s *simulation) work() {
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

func (s *simulation) do(j job) (next *job) {
	s.begin(j)
	select {
	case <-time.After(time.Duration(s.number(1500)) * time.Millisecond):
	case <-j.ctx.Done():
	}
	result := s.end(j)
	j.turn.Claimed, j.turn.Following = nil, nil
	if s.number(2) == 0 {
		if r := s.scheduler.following(&j, s.number(2) == 0); r != nil && (result.Done() || j.next != nil) {
			j.turn.Following = simulatedClaim{record: r, live: s.number(4) > 0}
		}
		s.pause()
	}
	next = s.scheduler.settle(j, result).next
	if c := j.turn.Following; c != nil && c.Live() && (next == nil || next.turn.Claimed != c) {
		s.Errorf("after %d/%d its worker goes on with %v, and the next is claimed: %v", j.record.Partition, j.record.Offset, next, c)
	}
	return next
}

// simulatedClaim is a claim ahead.
type simulatedClaim struct {
	record *kgo.Record
	live   bool
}

func (c simulatedClaim) Live() bool           { return c.live }
func (c simulatedClaim) Drop(context.Context) {}

func (s *simulation) lane(j job) string { return fmt.Sprintf("%d %q", j.record.Partition, j.lane.key) }

func (s *simulation) begin(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[s.lane(j)] {
		s.Errorf("two at once in lane %s", s.lane(j))
	}
	s.running[s.lane(j)] = true
	if c, ok := j.turn.Claimed.(simulatedClaim); ok && c.record != j.record {
		s.Errorf("%d/%d has the claim of %d/%d", j.record.Partition, j.record.Offset, c.record.Partition, c.record.Offset)
	}
	step := int64(1)
	if s.scheduler.keyOrder {
		step = 3
	}
	before := j.record.Offset - step
	if id := fmt.Sprint(j.record.Partition, "@", before); before >= 0 && !s.done[id] {
		s.Errorf("%d/%d runs before %s is finished", j.record.Partition, j.record.Offset, id)
	}
}

func (s *simulation) end(j job) idempotency.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[s.lane(j)] = false
	disposition := idempotency.Handled
	switch {
	case j.ctx.Err() != nil:
		disposition = []idempotency.Disposition{idempotency.Unavailable, idempotency.Retry}[s.random.IntN(2)]
	case !s.calm && s.random.IntN(2) == 0:
		disposition = idempotency.Elsewhere + idempotency.Disposition(s.random.IntN(4))
	default:
		s.done[fmt.Sprint(j.record.Partition, "@", j.record.Offset)] = true
	}
	return idempotency.Result{Disposition: disposition}
}
