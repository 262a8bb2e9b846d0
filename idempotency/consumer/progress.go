package consumer

import "github.com/twmb/franz-go/pkg/kgo"

// entry is a single record between the fetch and the commit.
type entry struct {
	record *kgo.Record // nil once done
	size   int
	after  kgo.EpochOffset // the position to commit behind the entry
	done   bool
}

// progress knows how far a partition's records are finished without a gap.
// progress is pure; the owner locks.
//
// Offsets have holes (compaction, transaction markers), so the order of
// delivery counts.
type progress struct {
	open  fifo[*entry] // not finished, or behind an unfinished entry
	bytes int          // the size of everything not finished
	// next is the position to commit, if known; committed is the committed
	// position.
	next, committed kgo.EpochOffset
	known           bool
}

// add takes records on, in the order of the partition, and returns an entry for
// each. The end of a transaction is finished at once: Kafka counts the marker,
// and so everything aborted before, as lag until an offset behind it is
// committed.
func (p *progress) add(records []*kgo.Record) []entry {
	entries := make([]entry, len(records))
	for i, r := range records {
		entries[i] = entry{
			record: r,
			size:   recordSize(r),
			after:  kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1},
		}
		p.open.push(&entries[i])
		p.bytes += entries[i].size
		if r.Attrs.IsControl() {
			p.finish(&entries[i])
		}
	}
	return entries
}

// finish notes an entry as done and moves on over all done entries.
func (p *progress) finish(e *entry) {
	e.done, e.record = true, nil
	p.bytes -= e.size
	for p.open.len() > 0 && p.open.first().done {
		p.next, p.known = p.open.pop().after, true
	}
}

// uncommitted returns the position to commit, if new.
func (p *progress) uncommitted() (kgo.EpochOffset, bool) {
	return p.next, p.known && p.next != p.committed
}

// recordSize is a record's memory, about.
func recordSize(r *kgo.Record) int {
	const overhead = 200 // kgo.Record and entry
	size := overhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		size += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return size
}
