package consumer

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
)

// partitionID names a partition.
type partitionID struct {
	topic  string
	number int32
}

// partition is an assignment of a partition to the consumer, guarded by the
// scheduler's lock.
type partition struct {
	partitionID
	// ctx is for the partition's handlers; abandon ends it.
	ctx     context.Context
	abandon context.CancelCauseFunc

	progress progress
	inbox    []*kgo.Record    // fetched, and not taken on
	lanes    map[string]*lane // lanes with records
	running  int              // lanes being worked on
	waiting  int              // lanes waiting to try again
	paused   bool             // not fetched since pausedAt, because full
	pausedAt time.Time
	slow     bool // the last pause was long

	// closing: no handler starts any more. idle is closed when none runs.
	closing bool
	idle    chan struct{}
}

// close lets nothing start any more.
func (p *partition) close() {
	if p.closing {
		return
	}
	p.closing = true
	for _, l := range p.lanes {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
	p.signalIdle()
}

func (p *partition) signalIdle() {
	if p.closing && p.running == 0 {
		select {
		case <-p.idle:
		default:
			close(p.idle)
		}
	}
}

// laneState is a lane's activity.
type laneState uint8

const (
	laneEmpty   laneState = iota
	laneReady             // in the scheduler's queue
	laneRunning           // the first record is with a worker
	laneWaiting           // the first record is tried again after a while
)

// lane holds records to be handled in turn: a partition's, or a key's in a
// partition.
type lane struct {
	partition *partition
	key       string
	queue     fifo[*entry] // the first is running, waiting or next
	state     laneState
	failures  int                  // of the first record, in a row
	pending   *idempotency.Pending // on the first record: left by the last attempt
	turn      ahead.Turn           // of the first record; the rest is the second
	timer     *time.Timer
	silent    bool // waits because the store gave no answer about the first record
}

// laneKey identifies a record's lane in the partition.
func (s *scheduler) laneKey(r *kgo.Record) string {
	if s.keyOrder {
		return string(r.Key)
	}
	return ""
}

// lane returns the lane of the key, a new one if it has no records now.
func (p *partition) lane(key string) *lane {
	l := p.lanes[key]
	if l == nil {
		l = &lane{partition: p, key: key}
		p.lanes[key] = l
	}
	return l
}
