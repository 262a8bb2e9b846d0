package consumer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/circuit"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

var unavailable = idempotency.Result{Disposition: idempotency.Unavailable}

// scheduled returns a scheduler with a record in each of so many partitions.
func scheduled(t *testing.T, partitions int) *scheduler {
	t.Helper()
	s := newScheduler(t.Context(), &Config{
		MaxBufferedRecords: 10, MaxBufferedBytes: 10_000, BackoffFirst: time.Second, BackoffLongest: time.Minute,
	})
	for n := range partitions {
		s.add(partitionID{"orders", int32(n)}, []*kgo.Record{{Topic: "orders", Partition: int32(n)}})
	}
	return s
}

// take returns the next job; without one the test fails.
func take(t *testing.T, s *scheduler) job {
	t.Helper()
	done := time.AfterFunc(time.Hour, s.close)
	defer done.Stop()
	j, ok := s.next()
	if !ok {
		t.Fatal("there is no job")
	}
	return j
}

// revoke cuts off the running handlers of a partition.
func revoke(s *scheduler, p *partition) {
	s.closePartitions(map[string][]int32{p.topic: {p.number}})
	p.abandon(errRevoked)
}

// Handlers of a lost or stopped partition are left alone for the time allowed.
func TestWhatRunsIsCutOffWhenThePatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduled(t, 1)
		j := take(t, s)
		begun := time.Now()
		context.AfterFunc(j.ctx, func() {
			if waited := time.Since(begun); waited != time.Minute {
				t.Errorf("cut off after %s", waited)
			}
			s.settle(j, unavailable)
		})
		abandoned, stuck := s.settleRunning(s.closePartitions(nil), time.Minute, time.Hour, errStopping)
		if abandoned != 1 || stuck != 0 || context.Cause(j.ctx) != errStopping {
			t.Errorf("%d abandoned, %d stuck, cause %v", abandoned, stuck, context.Cause(j.ctx))
		}
	})
}

func TestAClaimThatWeCutOffDoesNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduled(t, 2)
		cut := take(t, s)
		revoke(s, cut.lane.partition)
		if done := s.settle(cut, unavailable); done.opened || s.breaker.State() != circuit.Closed {
			t.Errorf("the breaker is open: %+v", done)
		}
		if j := take(t, s); j.probe || j.record.Partition == cut.record.Partition {
			t.Errorf("%+v", j)
		}
	})
}

// open lets enough lanes get no answer from the store.
func open(t *testing.T, s *scheduler) {
	t.Helper()
	jobs := make([]job, silentLanes)
	for i := range jobs {
		jobs[i] = take(t, s)
	}
	for i, j := range jobs {
		if done := s.settle(j, unavailable); done.opened != (i == len(jobs)-1) || done.wait <= 0 {
			t.Fatalf("lane %d: %+v", i, done)
		}
	}
}

// A record without an answer from the store, such as with a foreign key, keeps up
// no other.
func TestOneUnanswerableRecordStopsItsOwnLaneOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduled(t, 2)
		waits := 0
		for handled := 0; handled < 50; {
			j := take(t, s)
			if j.probe {
				t.Fatal("the breaker is open")
			}
			if j.record.Partition == 1 {
				waits++
				if done := s.settle(j, unavailable); done.opened || done.wait <= 0 || done.wait > time.Minute {
					t.Fatalf("%+v", done)
				}
				continue
			}
			s.settle(j, idempotency.Result{Disposition: idempotency.Handled})
			handled++
			s.add(partitionID{"orders", 0}, []*kgo.Record{{Topic: "orders", Offset: int64(handled)}})
			<-time.After(time.Second)
		}
		if waits < 4 || waits > 10 { // 1, 2, 4 seconds and so on, of fifty
			t.Errorf("the record was tried %d times", waits)
		}
	})
}

// When the store is back, the waiting lanes go on at once.
func TestAllGoOnWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduled(t, silentLanes+1)
		open(t, s)
		for range 5 {
			if done := s.settle(take(t, s), unavailable); done.opened {
				t.Fatalf("%+v", done)
			}
		}
		if done := s.settle(take(t, s), idempotency.Result{Disposition: idempotency.Handled}); !done.closed {
			t.Fatal("the breaker is open although the store answered")
		}
		back := time.Now()
		for range silentLanes {
			s.settle(take(t, s), idempotency.Result{Disposition: idempotency.Handled})
		}
		if waited := time.Since(back); waited > 0 {
			t.Errorf("they waited for %s", waited)
		}
	})
}

func TestAProberThatIsCutOffMakesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduled(t, 5)
		open(t, s)
		prober := take(t, s) // after the wait
		if !prober.probe {
			t.Fatalf("%+v", prober)
		}
		revoke(s, prober.lane.partition)
		began := time.Now()
		if done := s.settle(prober, unavailable); done.opened || done.closed || done.wait != 0 {
			t.Errorf("%+v", done)
		}
		next := take(t, s)
		if waited := time.Since(began); !next.probe || waited > 0 {
			t.Errorf("%+v after %s", next, waited)
		}
		if done := s.settle(next, idempotency.Result{Disposition: idempotency.Handled}); !done.closed {
			t.Error("the breaker is open although the store answered")
		}
	})
}

func TestWhatIsPendingIsGivenToTheNextAttemptAtItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := storage.Key{Scope: "s", ID: "id"}
		pending := &idempotency.Pending{Key: key}
		s := newScheduler(t.Context(), &Config{
			MaxBufferedRecords: 10, MaxBufferedBytes: 10_000, BackoffFirst: time.Second, BackoffLongest: time.Minute,
		})
		s.add(partitionID{"orders", 0}, []*kgo.Record{{Offset: 0}, {Offset: 1}})
		for n, test := range []struct {
			offset      int64
			given, left *idempotency.Pending
			disposition idempotency.Disposition
		}{
			{0, nil, pending, idempotency.Retry},
			{0, pending, pending, idempotency.Unavailable},
			{0, pending, nil, idempotency.Lost},
			{0, nil, pending, idempotency.Retry},
			{0, pending, nil, idempotency.DeadLettered},
			{1, nil, nil, idempotency.Handled},
		} {
			j := take(t, s)
			if j.record.Offset != test.offset || j.pending != test.given {
				t.Fatalf("job %d: offset %d with %v pending", n, j.record.Offset, j.pending)
			}
			s.settle(j, idempotency.Result{Disposition: test.disposition, Pending: test.left})
		}
	})
}

// Records fetched beyond the limit are taken on as earlier ones get finished,
// in order, and hold up further fetches.
func TestTheInboxIsTakenOnBitByBit(t *testing.T) {
	s := newScheduler(t.Context(), &Config{
		MaxBufferedRecords: 10, MaxBufferedBytes: 10_000, BackoffFirst: time.Second, BackoffLongest: time.Minute,
	})
	id := partitionID{"orders", 0}
	var records []*kgo.Record
	for n := range int64(100) {
		records = append(records, &kgo.Record{Topic: "orders", Offset: n})
	}
	s.add(id, records)
	p := s.parts[id]
	for n := range int64(100) {
		if open := p.progress.open.len(); open > 10 || open == 0 {
			t.Fatalf("%d are taken on", open)
		}
		if fetched := s.limit.hasRoom(p); fetched != (n >= 95) {
			t.Fatalf("before record %d: fetched %t", n, fetched)
		}
		j := take(t, s)
		if j.record.Offset != n {
			t.Fatalf("record %d, want %d", j.record.Offset, n)
		}
		s.settle(j, idempotency.Result{Disposition: idempotency.Handled})
	}
	if next, _ := p.progress.uncommitted(); next.Offset != 100 {
		t.Errorf("finished up to %d", next.Offset)
	}
}

// The gauge tells of all partitions once the store is silent: also if keys of a
// single partition found out, and of a partition assigned meanwhile.
func TestAllPartitionsStandStillWhenTheBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduled(t, 0)
		s.keyOrder = true
		paused := 0
		s.observer.PausedPartitions = func(change int) { paused += change }
		var records []*kgo.Record
		for _, key := range []string{"a", "b", "c"} {
			records = append(records, &kgo.Record{Topic: "orders", Key: []byte(key)})
		}
		s.add(partitionID{"orders", 0}, records)
		var jobs []job
		for range silentLanes {
			jobs = append(jobs, take(t, s))
		}
		s.add(partitionID{"orders", 1}, []*kgo.Record{{Topic: "orders", Partition: 1}})
		for _, j := range jobs {
			s.settle(j, unavailable)
		}
		if s.breaker.State() != circuit.Open || paused != 2 {
			t.Errorf("the breaker is %s, %d partitions paused of 2", s.breaker.State(), paused)
		}
		s.add(partitionID{"orders", 2}, []*kgo.Record{{Topic: "orders", Partition: 2}})
		if paused != 3 {
			t.Errorf("%d partitions paused of 3", paused)
		}
		s.forget(s.closePartitions(nil))
		if paused != 0 {
			t.Errorf("%d partitions paused, all are given up", paused)
		}
	})
}

// claimed is a claim ahead.
type claimed bool

func (c claimed) Live() bool           { return bool(c) }
func (c claimed) Drop(context.Context) {}

// A worker's next job is settled before the completion of a record: with the
// resulting claim, unless the job may not begin any more.
func TestAWorkerGoesOnWithTheLaneThatWasReady(t *testing.T) {
	known := claimed(false)
	for name, c := range map[string]struct {
		before     func(s *scheduler, l *lane) // the ready lane
		meanwhile  func(s *scheduler, l *lane)
		claim      ahead.Claim
		unasked    bool        // no claim may be asked for
		goesOn     bool        // the worker does
		with       ahead.Claim // the lane's record's claim then, now or later
		running    int         // in the lane's partition, afterwards
		notHandled bool        // the record before
	}{
		"claimed":                {claim: claimed(true), goesOn: true, with: claimed(true), running: 1},
		"not granted":            {claim: claimed(false), goesOn: true, with: claimed(false), running: 1},
		"not asked for":          {goesOn: true, running: 1},
		"the one before failed":  {claim: claimed(true), goesOn: true, with: claimed(true), running: 1, notHandled: true},
		"it was claimed before":  {before: func(_ *scheduler, l *lane) { l.turn.Claimed = known }, unasked: true, goesOn: true, with: known, running: 1},
		"something is pending":   {before: func(_ *scheduler, l *lane) { l.pending = &idempotency.Pending{} }, unasked: true, goesOn: true, running: 1},
		"taken away":             {meanwhile: func(s *scheduler, l *lane) { revoke(s, l.partition) }, claim: claimed(false)},
		"taken away, claimed":    {meanwhile: func(s *scheduler, l *lane) { revoke(s, l.partition) }, claim: claimed(true), goesOn: true, with: claimed(true), running: 1},
		"the store is gone":      {meanwhile: silence, claim: claimed(false), with: claimed(false)},
		"the store is gone late": {meanwhile: silence, claim: claimed(true), goesOn: true, with: claimed(true), running: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scheduled(t, 2)
				j := take(t, s)
				l := s.ready.first()
				if c.before != nil {
					c.before(s, l)
				}
				j.turn.Following = claimed(false) // of the same lane's second, at an attempt before
				r := s.following(&j, false)
				if asked := r != nil; asked == c.unasked || asked && r != l.queue.first().record {
					t.Errorf("%v may be claimed", r)
				}
				if s.following(&j, false) != nil {
					t.Error("and another one")
				}
				if c.meanwhile != nil {
					c.meanwhile(s, l)
				}
				if c.claim != nil {
					j.turn.Following = c.claim
				}
				disposition := idempotency.Handled
				if c.notHandled {
					disposition = idempotency.Retry
				}
				next := s.settle(j, idempotency.Result{Disposition: disposition}).next
				if (next != nil) != c.goesOn || l.partition.running != c.running {
					t.Fatalf("it goes on with %+v, %d run", next, l.partition.running)
				}
				turn := l.turn
				if next != nil {
					turn = next.turn
				}
				if !l.partition.closing && turn.Claimed != c.with {
					t.Errorf("with the claim %v, want %v", turn.Claimed, c.with)
				}
				if next != nil && (next.lane != l || next.pending != l.pending) {
					t.Errorf("%+v", next)
				}
				switch {
				case c.goesOn:
				case l.partition.closing:
					<-l.partition.idle
				case s.ready.first() != l || l.state != laneReady:
					t.Error("the lane is not ready any more")
				}
			})
		})
	}
}

// silence has other lanes find out that the store is silent.
func silence(s *scheduler, _ *lane) {
	for n := range silentLanes {
		other := &lane{key: fmt.Sprint(n)}
		s.breaker.Starts(other)
		s.breaker.Fails(other, other, time.Now())
	}
}
