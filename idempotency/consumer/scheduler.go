package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/circuit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// scheduler hands records to workers: in order within a lane, fairly among
// lanes, none past a record not finished. The lock guards the content of
// partitions and lanes; nothing blocks while held.
type scheduler struct {
	base     context.Context // of the handlers
	keyOrder bool
	limit    limit
	waits    backoff.Range
	observer Observer

	mu      sync.Mutex
	work    sync.Cond // a lane became ready, or the scheduler was closed
	parts   map[partitionID]*partition
	ready   fifo[*lane]
	breaker *circuit.Breaker[*lane, *lane] // stops all lanes while the store does not answer
	blocked int                            // partitions with a waiting lane
	paused  int                            // partitions standing still, as the observer was told
	closed  bool

	// slack is signalled once when slackWanted and a partition has room.
	slack       chan struct{}
	slackWanted bool
}

// silentLanes is how many lanes in a row must get no answer from the store
// before all of them wait. A single lane may ask for an unavailable key: it
// waits alone.
const silentLanes = 3

func newScheduler(base context.Context, cfg *Config) *scheduler {
	waits := backoff.Range{First: cfg.BackoffFirst, Longest: cfg.BackoffLongest}
	s := &scheduler{
		base:     base,
		keyOrder: cfg.KeyOrder,
		limit:    limit{records: cfg.MaxBufferedRecords, bytes: cfg.MaxBufferedBytes},
		waits:    waits,
		observer: cfg.Observer,
		parts:    map[partitionID]*partition{},
		breaker:  circuit.New[*lane, *lane](silentLanes, waits.Wait),
		slack:    make(chan struct{}, 1),
	}
	s.work.L = &s.mu
	return s
}

// add takes everything fetched of a partition. The first records of an
// assignment make the partition known.
func (s *scheduler) add(id partitionID, records []*kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partition(id)
	p.inbox = append(p.inbox, records...)
	s.takeOn(p)
}

// begin makes a partition known before the first records, with a position to
// commit.
func (s *scheduler) begin(id partitionID, at kgo.EpochOffset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partition(id)
	p.progress.next, p.progress.known = at, true
}

// partition returns the partition of the assignment, new if unknown.
func (s *scheduler) partition(id partitionID) *partition {
	p := s.parts[id]
	if p == nil {
		p = &partition{partitionID: id, lanes: map[string]*lane{}, idle: make(chan struct{})}
		p.ctx, p.abandon = context.WithCancelCause(s.base)
		s.parts[id] = p
		s.pausedChanged()
	}
	return p
}

// takeOn takes records from the partition's inbox up to the limit. Everything
// finished at once makes room for more.
func (s *scheduler) takeOn(p *partition) {
	for s.takeSome(p) {
	}
}

func (s *scheduler) takeSome(p *partition) bool {
	n, bytes := 0, p.progress.bytes
	for n < len(p.inbox) && p.progress.open.len()+n < s.limit.records && bytes < s.limit.bytes {
		bytes += recordSize(p.inbox[n])
		n++
	}
	entries := p.progress.add(p.inbox[:n])
	clear(p.inbox[:n])
	if p.inbox = p.inbox[n:]; len(p.inbox) == 0 {
		p.inbox = nil
	}
	for i := range entries {
		if entries[i].done {
			continue
		}
		l := p.lane(s.laneKey(entries[i].record))
		l.queue.push(&entries[i])
		if l.state == laneEmpty {
			s.makeReady(l)
			s.work.Signal()
		}
	}
	return n > 0
}

func (s *scheduler) makeReady(l *lane) {
	l.state = laneReady
	s.ready.push(l)
}

// job is a record to be processed.
type job struct {
	lane   *lane
	ctx    context.Context
	record *kgo.Record
	// pending was left by the last attempt at the record, or is nil.
	pending *idempotency.Pending
	turn    ahead.Turn
	probe   bool // whether the store answers is not known
	// next is the worker's next job; nil if not known yet, or the lane's own.
	next *job
}

// next waits for the next job and returns it, or false when the scheduler is
// closed. Each job must be settled.
func (s *scheduler) next() (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return job{}, false
		}
		if l := s.takeReady(); l != nil {
			s.breaker.Starts(l)
			return s.job(l), true
		}
		s.work.Wait()
	}
}

// job returns the lane's next, running from now on.
func (s *scheduler) job(l *lane) job {
	l.state = laneRunning
	l.partition.running++
	return job{
		lane: l, ctx: l.partition.ctx, record: l.queue.first().record, pending: l.pending, turn: l.turn,
		probe: s.breaker.State() != circuit.Closed,
	}
}

// following decides on the worker's next job: the first record of the lane that
// has been ready for longest or, if none is, the second of its own. following
// returns the record if it may be claimed now, or nil. Another lane's is the
// worker's from then on: the completion of a single message is all that keeps
// it waiting. With own, no other lane is taken.
func (s *scheduler) following(j *job, own bool) *kgo.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breaker.State() != circuit.Closed || j.next != nil {
		return nil
	}
	if own {
		if j.turn.Following != nil { // of an attempt before, by another owner
			return nil
		}
		return j.lane.second()
	}
	if l := s.takeReady(); l != nil {
		next := s.job(l)
		j.next, j.turn.Following = &next, nil
		if next.pending != nil || next.turn.Claimed != nil {
			return nil // perhaps claimed before, by another owner
		}
		return next.record
	}
	return j.lane.second()
}

// second returns the record behind the first, if ready.
func (l *lane) second() *kgo.Record {
	if l.partition.closing || l.queue.len() < 2 {
		return nil
	}
	return l.queue.second().record
}

// takeReady returns the next ready lane, or nil.
func (s *scheduler) takeReady() *lane {
	for s.ready.len() > 0 {
		if s.ready.first().partition.closing {
			s.ready.pop()
			continue
		}
		if !s.breaker.Allows(time.Now()) {
			return nil
		}
		return s.ready.pop()
	}
	return nil
}

// settlement is the outcome of settling a job.
type settlement struct {
	wait           time.Duration // until the record is tried again
	opened, closed bool          // the breaker
	room           bool          // the partition may be fetched again
	next           *job          // to be done now
}

// settle takes the result of a job.
func (s *scheduler) settle(j job, result idempotency.Result) settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, p := j.lane, j.lane.partition
	p.running--
	defer p.signalIdle()
	following := j.turn.Following
	if j.next != nil && following != nil {
		j.next.turn.Claimed, following = following, nil
	}
	l.pending, l.turn = result.Pending, ahead.Turn{Claimed: j.turn.Claimed, Following: following}
	var done settlement
	switch {
	case result.Disposition == idempotency.Unavailable && j.ctx.Err() != nil:
		s.breaker.Cancelled(l) // by us, so no news of the store
	case result.Disposition == idempotency.Unavailable:
		var open time.Duration
		if done.opened, open = s.breaker.Fails(l, l, time.Now()); open > 0 {
			time.AfterFunc(open, s.wakeAll)
		}
		s.pausedChanged()
	default:
		done.closed = s.passed(l)
	}
	switch {
	case result.Done():
		p.progress.finish(l.queue.pop())
		l.failures, l.pending = 0, nil
		if !p.closing && len(p.inbox) > 0 && s.limit.low(p) {
			s.takeOn(p)
		}
		l.turn = ahead.Turn{Claimed: following}
		done.next = s.proceed(l)
		s.slackened(p)
		done.room = p.paused && s.limit.hasRoom(p)
	case p.closing:
		l.state = laneEmpty
	default:
		l.failures++
		done.wait = result.Wait
		l.silent = result.Disposition == idempotency.Unavailable
		if done.wait <= 0 || l.silent {
			done.wait = s.waits.Wait(l.failures)
		}
		s.park(l, done.wait)
	}
	if j.next != nil {
		done.next = s.resume(j.next)
	}
	return done
}

// resume returns the worker's next job, if free to begin; a claimed job has
// begun.
func (s *scheduler) resume(j *job) *job {
	l := j.lane
	if c := j.turn.Claimed; c != nil && c.Live() || !l.partition.closing && s.breaker.State() == circuit.Closed {
		return j
	}
	l.turn.Claimed = j.turn.Claimed
	l.partition.running--
	l.partition.signalIdle()
	if l.partition.closing {
		l.state = laneEmpty
	} else {
		s.makeReady(l)
	}
	return nil
}

// proceed goes on with a lane with the first record finished. A lane with the
// next record claimed has begun: it is the caller's to run.
func (s *scheduler) proceed(l *lane) *job {
	switch {
	case l.turn.Claimed != nil && l.turn.Claimed.Live():
		next := s.job(l)
		return &next
	case l.queue.len() == 0:
		l.state = laneEmpty
		delete(l.partition.lanes, l.key)
	case l.partition.closing:
		l.state = laneEmpty
	default:
		s.makeReady(l) // the caller is a worker and comes for the next job
	}
	return nil
}

// passed lets all lanes go on if the lane was the breaker's prober, also lanes
// waiting for a silent store.
func (s *scheduler) passed(l *lane) bool {
	if !s.breaker.Passes(l) {
		return false
	}
	for _, p := range s.parts {
		for _, l := range p.lanes {
			if l.silent {
				s.unparkLocked(l)
			}
		}
	}
	s.work.Broadcast()
	s.pausedChanged()
	return true
}

// started is told that a probing job's handler runs: the store answered.
func (s *scheduler) started(j job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed(j.lane)
}

// park lets a lane wait. The timer ends with the partition.
func (s *scheduler) park(l *lane, wait time.Duration) {
	l.state = laneWaiting
	if l.partition.waiting++; l.partition.waiting == 1 {
		s.blocked++
		s.pausedChanged()
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.timer == timer {
			s.unparkLocked(l)
		}
	})
	l.timer = timer
}

// unparkLocked lets a waiting lane go on.
func (s *scheduler) unparkLocked(l *lane) {
	if l.partition.closing || l.state != laneWaiting {
		return
	}
	l.timer.Stop()
	if l.partition.waiting--; l.partition.waiting == 0 {
		s.blocked--
		s.pausedChanged()
	}
	s.makeReady(l)
	s.work.Signal()
}

// pausedChanged tells the observer how many partitions stand still.
func (s *scheduler) pausedChanged() {
	n := s.blocked
	if s.breaker.State() != circuit.Closed {
		n = len(s.parts)
	}
	s.observer.pausedPartitions(n - s.paused)
	s.paused = n
}

// wakeAll makes the workers look again. Under the lock no worker is between the
// look and the wait, so none misses the signal.
func (s *scheduler) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work.Broadcast()
}

// close ends the workers.
func (s *scheduler) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.work.Broadcast()
}
