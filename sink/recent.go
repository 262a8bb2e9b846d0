package sink

import (
	"maps"
	"time"
)

// partition is a partition of a topic.
type partition struct {
	topic  string
	number int32
}

// partitions is a set of partitions.
type partitions map[partition]bool

func (p partitions) add(others partitions) { maps.Copy(p, others) }

// without returns p without others.
func (p partitions) without(others partitions) partitions {
	rest := maps.Clone(p)
	maps.DeleteFunc(rest, func(one partition, _ bool) bool { return others[one] })
	return rest
}

// partitionsOf are the partitions of the rounds.
func partitionsOf(rounds [][]placed) partitions {
	all := make(partitions)
	for _, round := range rounds {
		for _, p := range round {
			all[partition{p.Record.Topic, p.Record.Partition}] = true
		}
	}
	return all
}

// remembered is the number of transactions in recent. With ten events over six
// partitions each, nearly all partitions of the next are in the last four.
const remembered = 4

// fresh is the age until which recent foresees. Where events are rarer, no batch forms
// while a transaction is prepared, so there is no gain.
const fresh = time.Second

// recent foresees the partitions of the next transaction from the last
// transactions. A transaction costs a marker in each enlisted partition, and waits
// for the partition's leader. So nothing is foreseen where the guess would often
// be wrong: with many partitions, and few events in a transaction.
type recent struct {
	count    int
	in       map[partition]int // the last transaction with the partition
	foreseen bool              // all partitions of the last transaction were in earlier ones
	at       time.Time         // the last commit
}

// note adds a transaction just committed. A transaction with the mark alone tells
// nothing of events.
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

// next are the likely partitions of the next transaction; none if they cannot be
// foreseen.
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
