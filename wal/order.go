package wal

import (
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// sequencer restores the order of rows and logical messages within a
// transaction. The server merges the changes of subtransactions by their
// positions in the log. For a row it takes the start of the record, for a
// message the end of the record (reorderbuffer.c, ReorderBufferIterCompare;
// decode.c, logicalmsg_decode). So a message and the row right behind it have
// the same position. If a savepoint lies between them, they may come in either
// order. The message was always written first.
//
// Rows are therefore held back until something at another position follows; the
// commit always does. The rows of one multi-insert record share a position, so
// at most as many rows are held as fit a page of a COPY.
type sequencer struct {
	position pg.LSN
	held     []Message // rows at position
	ready    []Message // rows to deliver before anything else, from next on
	next     int
	after    *Message // a message of the decoder, to deliver after ready; nil: none
	lent     *Chunk   // held for the row delivered last
}

// deliver returns a message needing no further frame, or nil. Next calls first:
// by then the caller may no longer use the row before, so the chunk is
// released.
func (s *sequencer) deliver() *Message {
	s.lent.Release(1)
	s.lent = nil
	if s.next < len(s.ready) {
		msg := &s.ready[s.next]
		s.next++
		s.lent = msg.Chunk
		return msg
	}
	msg := s.after
	s.after = nil
	return msg
}

// take takes a message of the decoder and the position, and returns the message
// to deliver now, or nil. Called when nothing is ready any more.
func (s *sequencer) take(msg *Message, at pg.LSN) *Message {
	row := msg.Kind <= Truncate
	switch {
	case row && (len(s.held) == 0 || at == s.position):
		s.hold(msg, at)
		return nil
	case len(s.held) == 0:
		return msg
	case msg.Kind == LogicalMessage && at == s.position: // it was written before the rows
		msg.Row.Position.Seq = s.held[0].Row.Position.Seq
		for i := range s.held {
			s.held[i].Row.Position.Seq++
		}
		return msg
	}
	s.held, s.ready, s.next = s.ready[:0], s.held, 0
	if row {
		s.hold(msg, at)
	} else {
		s.after = msg
	}
	return s.deliver()
}

// hold copies a row, into memory used before. The bytes of the values stay
// where they are.
func (s *sequencer) hold(msg *Message, at pg.LSN) {
	n := len(s.held)
	if n == cap(s.held) {
		s.held = append(s.held, Message{})
	}
	s.held = s.held[:n+1]
	values := s.held[n].Row.Values
	values = append(values[:0], msg.Row.Values...)
	s.held[n] = *msg
	s.held[n].Row.Values = values
	msg.Chunk.Retain()
	s.position = at
}
