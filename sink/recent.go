package sink

import (
	"maps"
	"time"
)

// partition is one of a topic.
type partition struct {
	topic  string
	number int32
}

// partitions is a set of them.
type partitions map[partition]bool

func (p partitions) add(others partitions) { maps.Copy(p, others) }

// without returns the partitions that others does not have.
func (p partitions) without(others partitions) partitions {
	rest := maps.Clone(p)
	maps.DeleteFunc(rest, func(one partition, _ bool) bool { return others[one] })
	return rest
}

// partitionsOf are the partitions that the rounds go to.
func partitionsOf(rounds [][]placed) partitions {
	all := make(partitions)
	for _, round := range rounds {
		for _, p := range round {
			all[partition{p.Record.Topic, p.Record.Partition}] = true
		}
	}
	return all
}

// remembered is how many transactions recent remembers. With ten events over six
// partitions each, nearly all of the next one's partitions are in the last four.
const remembered = 4

// fresh is for how long. Where events are rarer, no batch forms while a
// transaction is prepared, so nothing would be gained.
const fresh = time.Second

// recent are the partitions of the last transactions, by which those of the
// next one are foreseen. A transaction costs a marker in each partition it was
// told of, and waits for that partition's leader. So nothing is foreseen where
// that would often be wrong: with many partitions, and few events in a
// transaction.
type recent struct {
	count    int
	in       map[partition]int // the last transaction that had it
	foreseen bool              // all partitions of the last transaction were in those before it
	at       time.Time         // when that one was committed
}

// note adds a transaction committed just now. A transaction with the mark alone
// tells nothing of events.
func (r *recent) note(of partitions, now time.Time) {
	if len(of) == 1 {
		return
	}
	if r.in == nil {
		r.in = make(map[partition]int)
	}
	r.count++
	r.at, r.foreseen = now, true
	for p := range of {
		r.foreseen = r.foreseen && r.in[p] > 0
		r.in[p] = r.count
	}
	maps.DeleteFunc(r.in, func(_ partition, last int) bool { return last <= r.count-remembered })
}

// next are the partitions the next transaction is likely to have; none if that
// cannot be told.
func (r *recent) next(now time.Time) partitions {
	if !r.foreseen || now.Sub(r.at) > fresh {
		return nil
	}
	likely := make(partitions)
	for p := range r.in {
		likely[p] = true
	}
	return likely
}
