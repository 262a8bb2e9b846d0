package main

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// journal notes the times of each event of a traffic, at the commit and in a consumer.
// A journal is safe for concurrent use.
type journal struct {
	began    time.Time
	traffic  int
	next     atomic.Int64
	commits  []atomic.Int64 // nanoseconds after began; 0 is not yet
	receipts []atomic.Int64
}

// newJournal has room for as many events. traffic is a number no other has on
// the server.
func newJournal(traffic, events int) *journal {
	return &journal{began: time.Now(), traffic: traffic, commits: make([]atomic.Int64, events), receipts: make([]atomic.Int64, events)}
}

func (j *journal) now() int64 { return max(1, int64(time.Since(j.began))) }

// take is the number of a new event; ok is false if there is no room.
func (j *journal) take() (number int64, ok bool) {
	number = j.next.Add(1) - 1
	return number, number < int64(len(j.commits))
}

// id is an event's, a UUID.
func (j *journal) id(number int64) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", j.traffic, number)
}

// committed notes events committed together.
func (j *journal) committed(events []int64) {
	now := j.now()
	for _, number := range events {
		j.commits[number].Store(now)
	}
}

// received notes that a consumer has the event of the id at the time; the first
// time counts.
func (j *journal) received(id string, at int64) error {
	prefix := fmt.Sprintf("%08x-0000-4000-8000-", j.traffic)
	if len(id) != 36 || id[:24] != prefix {
		return fmt.Errorf("event %s is of no commit here", id)
	}
	number, err := strconv.ParseInt(id[24:], 16, 64)
	if err != nil || number >= int64(len(j.receipts)) {
		return fmt.Errorf("event %s is of no commit here", id)
	}
	j.receipts[number].CompareAndSwap(0, at)
	return nil
}

// missing is how many events were committed and not received.
func (j *journal) missing() (n int) {
	for i := range min(j.next.Load(), int64(len(j.commits))) {
		if j.commits[i].Load() != 0 && j.receipts[i].Load() == 0 {
			n++
		}
	}
	return n
}

// latencies are the times from commit to consumer, sorted, of the events committed
// from one time until another. A consumer may have an event before the writer has the
// commit's answer: such a latency is 0.
func (j *journal) latencies(from, to int64) []time.Duration {
	var list []time.Duration
	for i := range min(j.next.Load(), int64(len(j.commits))) {
		if at := j.commits[i].Load(); at >= from && at < to {
			list = append(list, time.Duration(max(0, j.receipts[i].Load()-at)))
		}
	}
	slices.Sort(list)
	return list
}
