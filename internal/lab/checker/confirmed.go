package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Sample is a look at the slot, and then at the topics.
type Sample struct {
	At        time.Time // before the slot was looked at
	Confirmed pg.LSN    // the slot's confirmed position
	// Ends are the offsets of the next records of the topics' partitions, read
	// after Confirmed: everything confirmed must be below them.
	Ends map[string][]int64
}

// end is the partition's end, 0 where the topic did not exist.
func (s *Sample) end(topic string, partition int32) int64 {
	if ends := s.Ends[topic]; int(partition) < len(ends) {
		return ends[partition]
	}
	return 0
}

// confirmed finds samples with the slot beyond the commit of an event whose
// first record the topic did not have.
func (r *Report) confirmed(first map[string]delivery, samples []Sample) {
	type partition struct {
		topic  string
		number int32
	}
	partitions := map[partition][]delivery{}
	for _, d := range first {
		p := partition{d.Record.Topic, d.Partition}
		partitions[p] = append(partitions[p], d)
	}
	for p, ds := range partitions {
		slices.SortFunc(ds, func(a, b delivery) int { return cmp.Compare(a.Offset, b.Offset) })
		lowest := lowestFrom(ds)
		for i := range samples {
			s := &samples[i]
			from, _ := slices.BinarySearchFunc(ds, s.end(p.topic, p.number),
				func(d delivery, end int64) int { return cmp.Compare(d.Offset, end) })
			if from == len(ds) {
				continue
			}
			if d := lowest[from]; d.position.CommitLSN < s.Confirmed {
				r.problem(Premature, "the slot was confirmed to %s, but event %s at %s was not yet in %s, which ended at %d",
					s.Confirmed, d.ID, d.place(), d.where(), s.end(p.topic, p.number))
				break // enough for a partition
			}
		}
	}
}

// lowestFrom returns, for each index, the delivery of the lowest position from
// there on.
func lowestFrom(ds []delivery) []*delivery {
	lowest := make([]*delivery, len(ds))
	for i := len(ds) - 1; i >= 0; i-- {
		lowest[i] = &ds[i]
		if i+1 < len(ds) && lowest[i+1].position.Compare(ds[i].position) < 0 {
			lowest[i] = lowest[i+1]
		}
	}
	return lowest
}
