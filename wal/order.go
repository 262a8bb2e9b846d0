package wal

import (
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// sequencer restores the order of rows and logical messages within a
// transaction, where the server confuses it: it merges the changes of
// subtransactions by their positions in the log, and takes the record's start
// for a row, but the record's end for a message (reorderbuffer.c,
// ReorderBufferIterCompare; decode.c, logicalmsg_decode). So a message and the
// row whose record follows right behind it have the same position, and come in
// any order if a savepoint lies between them. A row is never at the position of
// a message before which it was written.
//
// Rows are therefore held back until something at another position follows,
// which it always does: the commit at the latest, and the server has decoded it
// by then. A row and its neighbours of one multi-insert record share a position:
// that many are held at most, which is a page of a COPY.
type sequencer struct {
	position pg.LSN
	held     []Message // rows at position
	ready    []Message // rows to deliver before anything else, from next on
	next     int
	after    *Message // the decoder's, to deliver after ready; nil: none
	lent     *Chunk   // of the row delivered last
}

// deliver returns what is to be delivered without another frame, nil if that is
// nothing. It is called first at each Next: the row before is the caller's no
// longer.
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

// take takes a message from the decoder, which lies at a position, and returns
// what is to be delivered now. All that was ready has been delivered.
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

// hold copies a row, into memory that was used before. The bytes of its values
// stay where they are.
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
