package wal

import (
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Kind is a Message's kind.
type Kind uint8

// The kinds of Message. The four row operations and LogicalMessage lie between
// transaction boundaries; Commit and Keepalive carry a position that may be
// confirmed once everything delivered before is acked.
const (
	Insert         Kind = iota + 1
	Update              // Row holds the new tuple
	Delete              // Row holds the old key, if the server sent one
	Truncate            // Row holds the relation only
	LogicalMessage      // pg_logical_emit_message; Prefix and Content are set
	Commit              // the end of a transaction; End is set
	Keepalive           // nothing in the log up to End concerns us; End is set
	Abort               // a transaction of which nothing was sent was rolled back; nothing is set
)

// Message is a single step of the stream. The struct and the slices belong to
// the stream and are valid until the next call to Next. The bytes the slices'
// elements point to are never written again and may be kept. With
// Options.Recycle they may be kept only while Chunk is retained.
type Message struct {
	Kind Kind
	// Chunk is the memory the bytes lie in.
	Chunk *Chunk
	// Row is set for row operations. The position, transaction id and commit time
	// are also set for LogicalMessage and Commit.
	Row pg.Row
	// End is the position to confirm: the transaction's end for Commit, the
	// server's sent position for Keepalive.
	End pg.LSN
	// Prefix and Content are a LogicalMessage's.
	Prefix  string
	Content []byte
	// Unread is set for a row refused by Options.Wanted or Options.Keep: it has
	// no values.
	Unread bool
	// NonTransactional is set for a LogicalMessage belonging to no transaction
	// (pg_logical_emit_message(false, …)). The message stays in the log even if
	// the writing transaction is rolled back. Of the Row only the position's LSN
	// is known. The LSN is the message's own, perhaps equal to the next commit's.
	NonTransactional bool

	span span
}

// Retain is Chunk.Retain for a message of a Stream. Retain returns how many
// more bytes of memory cannot be reused because of the call: the message's, and
// those since the message retained before, in chunks kept by either. To be
// called at most once for a message, while the message is valid. The sum over
// all retained messages is the memory they hold, except for part of the first
// and the last chunk.
func (m *Message) Retain() int64 {
	m.Chunk.Retain()
	if m.Chunk == nil {
		return 0
	}
	return m.span.keep(len(m.Chunk.buf))
}
