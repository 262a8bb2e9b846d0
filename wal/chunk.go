package wal

import (
	"sync/atomic"
)

// Chunk is memory the bytes of messages lie in. With Options.Recycle a chunk is
// used again once nobody needs the content. The stream holds a chunk while
// reading. A caller keeping a message's bytes past the next call of Next must
// call Retain, and Release afterwards. Without Recycle nothing is used again,
// and the two have no effect. The methods may be called from any goroutine,
// also on nil.
//
// Memory used again is still in the processor's cache, and is no work for the
// garbage collector.
type Chunk struct {
	buf  []byte
	refs atomic.Int32
	pool *chunkPool // nil: left to the garbage collector
}

// Retain keeps the chunk's bytes from being overwritten. To be called between
// two calls of Next, or by a holder of the chunk.
func (c *Chunk) Retain() {
	if c != nil && c.pool != nil {
		c.refs.Add(1)
	}
}

// Release undoes n calls of Retain. Forgetting the call costs reuse only;
// releasing early corrupts messages.
func (c *Chunk) Release(n int) {
	if c != nil && c.pool != nil && c.refs.Add(int32(-n)) == 0 {
		c.pool.put(c)
	}
}

// chunkPool keeps chunks nobody holds, up to poolSize of them.
type chunkPool struct{ free chan *Chunk }

const poolSize = 16

func newChunkPool() *chunkPool { return &chunkPool{free: make(chan *Chunk, poolSize)} }

// get returns a chunk of at least size bytes the caller holds. Only chunks of
// chunkSize are pooled; on a nil pool none is.
func (p *chunkPool) get(size int) *Chunk {
	if p == nil || size > chunkSize || size <= idleSize {
		return &Chunk{buf: make([]byte, size)}
	}
	select {
	case c := <-p.free:
		c.refs.Store(1)
		return c
	default:
	}
	c := &Chunk{buf: make([]byte, chunkSize), pool: p}
	c.refs.Store(1)
	return c
}

func (p *chunkPool) put(c *Chunk) {
	select {
	case p.free <- c:
	default: // enough of them
	}
}

// kept counts the memory that cannot be reused because of retained messages. A
// message keeps the whole chunk alive, even if little else in the chunk is
// needed: for example a small row between large rows of another table. Places
// count bytes over all chunks, as if they lay end to end. For a single
// goroutine.
type kept struct {
	end   int64 // of the last message retained
	limit int64 // of the chunk
}

// span is where a message lies.
type span struct {
	kept   *kept // nil for a message of no stream
	base   int64 // where the chunk begins
	end    int64
	length int64
}

// keep returns how much memory retaining the span adds; size is that of its
// chunk. If the message before is in the same chunk, that is everything since
// then; otherwise the rest of the other message's chunk and the beginning of
// this one. The chunks in between are not kept.
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
