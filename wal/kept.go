package wal

// kept counts the memory that cannot be reused because of retained messages. A
// message keeps its whole chunk alive, even if little else in the chunk is
// needed: for example a small row between large rows of another table. Places
// count bytes over all chunks, as if they lay end to end. One goroutine uses
// it.
type kept struct {
	end   int64 // of the last message retained
	limit int64 // of its chunk
}

// span is where a message lies.
type span struct {
	kept   *kept // nil for a message of no stream
	base   int64 // where its chunk begins
	end    int64
	length int64
}

// keep returns how much memory retaining the span adds; size is that of its
// chunk. If the message before is in the same chunk, that is everything since
// then. Otherwise it is the rest of the other message's chunk, and the
// beginning of this one. Nobody keeps the chunks in between.
func (s span) keep(size int) int64 {
	k := s.kept
	if k == nil || s.end < k.end { // the sequencer changed the order
		return s.length
	}
	n := s.end - k.end
	if s.base > k.end {
		n = k.limit - k.end + s.end - s.base
	}
	k.end, k.limit = s.end, s.base+int64(size)
	return n
}
