package wal

// kept counts the memory that retained messages keep from other use. A message
// keeps its whole chunk, which may hold little else of use: a small row between
// large ones of another table does, and so does one of many columns of which
// two are wanted. Places are in the memory of all chunks, laid end to end. One
// goroutine uses it.
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

// keep returns what retaining the span in a chunk of that size adds: in the same
// chunk, what lies between it and the one before; in another, the rest of that
// one's chunk and the beginning of its own. The chunks in between nobody keeps.
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
