package wal

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// This file writes pgoutput messages, for the tests of their readers.

// encode is the inverse of pglogrepl.Parse for messages of text values. For a
// value of an unknown kind it writes the kind alone.
func encode(m pglogrepl.Message) []byte {
	e := encoder{byte(m.Type())}
	switch m := m.(type) {
	case *pglogrepl.BeginMessage:
		e.uint64(uint64(m.FinalLSN)).time(m.CommitTime.UnixNano()).uint32(m.Xid)
	case *pglogrepl.CommitMessage:
		e.byte(m.Flags).uint64(uint64(m.CommitLSN)).uint64(uint64(m.TransactionEndLSN)).time(m.CommitTime.UnixNano())
	case *pglogrepl.OriginMessage:
		e.uint64(uint64(m.CommitLSN)).string(m.Name)
	case *pglogrepl.RelationMessage:
		e.uint32(m.RelationID).string(m.Namespace).string(m.RelationName).byte(m.ReplicaIdentity).uint16(m.ColumnNum)
		for _, c := range m.Columns {
			e.byte(c.Flags).string(c.Name).uint32(c.DataType).uint32(uint32(c.TypeModifier))
		}
	case *pglogrepl.TypeMessage:
		e.uint32(m.DataType).string(m.Namespace).string(m.Name)
	case *pglogrepl.InsertMessage:
		e.uint32(m.RelationID).tuple('N', m.Tuple)
	case *pglogrepl.UpdateMessage:
		e.uint32(m.RelationID)
		if m.OldTuple != nil {
			e.tuple(m.OldTupleType, m.OldTuple)
		}
		e.tuple('N', m.NewTuple)
	case *pglogrepl.DeleteMessage:
		e.uint32(m.RelationID).tuple(m.OldTupleType, m.OldTuple)
	case *pglogrepl.TruncateMessage:
		e.uint32(m.RelationNum).byte(m.Option)
		for _, oid := range m.RelationIDs {
			e.uint32(oid)
		}
	case *pglogrepl.LogicalDecodingMessage:
		flags := byte(0)
		if m.Transactional {
			flags = 1
		}
		e.byte(flags).uint64(uint64(m.LSN)).string(m.Prefix).uint32(uint32(len(m.Content))).bytes(m.Content)
	}
	return e
}

type encoder []byte

func (e *encoder) byte(b byte) *encoder     { *e = append(*e, b); return e }
func (e *encoder) bytes(b []byte) *encoder  { *e = append(*e, b...); return e }
func (e *encoder) string(s string) *encoder { *e = append(append(*e, s...), 0); return e }
func (e *encoder) uint16(v uint16) *encoder { *e = binary.BigEndian.AppendUint16(*e, v); return e }
func (e *encoder) uint32(v uint32) *encoder { *e = binary.BigEndian.AppendUint32(*e, v); return e }
func (e *encoder) uint64(v uint64) *encoder { *e = binary.BigEndian.AppendUint64(*e, v); return e }

// time writes a time given as Unix nanoseconds.
func (e *encoder) time(nanos int64) *encoder {
	return e.uint64(uint64(nanos/1000 - postgresEpoch))
}

func (e *encoder) tuple(tag byte, t *pglogrepl.TupleData) *encoder {
	e.byte(tag).uint16(t.ColumnNum)
	for _, c := range t.Columns {
		e.byte(c.DataType)
		if c.DataType == pglogrepl.TupleDataTypeText {
			e.uint32(uint32(len(c.Data))).bytes(c.Data)
		}
	}
	return e
}

// row builds a tuple of text values; nil is NULL.
func row(values ...any) *pglogrepl.TupleData {
	t := &pglogrepl.TupleData{ColumnNum: uint16(len(values))}
	for _, v := range values {
		c := &pglogrepl.TupleDataColumn{DataType: pglogrepl.TupleDataTypeNull}
		switch v := v.(type) {
		case string:
			c = &pglogrepl.TupleDataColumn{DataType: pglogrepl.TupleDataTypeText, Length: uint32(len(v)), Data: []byte(v)}
		case pg.ValueKind:
			c.DataType = byte(v)
		}
		t.Columns = append(t.Columns, c)
	}
	return t
}

// typed sets the type of a message built by a test, which Parse does itself.
func typed[M interface {
	pglogrepl.Message
	SetType(pglogrepl.MessageType)
}](t pglogrepl.MessageType, m M) M {
	m.SetType(t)
	return m
}

func begin(commit pg.LSN, xid uint32) *pglogrepl.BeginMessage {
	return typed('B', &pglogrepl.BeginMessage{FinalLSN: commit, Xid: xid, CommitTime: testTime})
}

func commit(commit, end pg.LSN) *pglogrepl.CommitMessage {
	return typed('C', &pglogrepl.CommitMessage{CommitLSN: commit, TransactionEndLSN: end, CommitTime: testTime})
}

func relation(oid uint32, namespace, name string, columns ...pg.Column) *pglogrepl.RelationMessage {
	m := typed('R', &pglogrepl.RelationMessage{
		RelationID: oid, Namespace: namespace, RelationName: name,
		ReplicaIdentity: 'd', ColumnNum: uint16(len(columns)),
	})
	for _, c := range columns {
		flags := byte(0)
		if c.Identity {
			flags = 1
		}
		m.Columns = append(m.Columns, &pglogrepl.RelationMessageColumn{
			Flags: flags, Name: c.Name, DataType: c.Type, TypeModifier: -1,
		})
	}
	return m
}

func insert(oid uint32, t *pglogrepl.TupleData) *pglogrepl.InsertMessage {
	return typed('I', &pglogrepl.InsertMessage{RelationID: oid, Tuple: t})
}

func update(oid uint32, oldTag byte, old, t *pglogrepl.TupleData) *pglogrepl.UpdateMessage {
	return typed('U', &pglogrepl.UpdateMessage{RelationID: oid, OldTupleType: oldTag, OldTuple: old, NewTuple: t})
}

func deletion(oid uint32, oldTag byte, old *pglogrepl.TupleData) *pglogrepl.DeleteMessage {
	return typed('D', &pglogrepl.DeleteMessage{RelationID: oid, OldTupleType: oldTag, OldTuple: old})
}

func truncation(oids ...uint32) *pglogrepl.TruncateMessage {
	return typed('T', &pglogrepl.TruncateMessage{RelationNum: uint32(len(oids)), RelationIDs: oids})
}

func logical(transactional bool, prefix, content string) *pglogrepl.LogicalDecodingMessage {
	return typed('M', &pglogrepl.LogicalDecodingMessage{
		Transactional: transactional, LSN: 7, Prefix: prefix, Content: []byte(content),
	})
}

func typeOf(oid uint32, namespace, name string) *pglogrepl.TypeMessage {
	return typed('Y', &pglogrepl.TypeMessage{DataType: oid, Namespace: namespace, Name: name})
}

func origin(name string) *pglogrepl.OriginMessage {
	return typed('O', &pglogrepl.OriginMessage{CommitLSN: 1, Name: name})
}

// session writes random but valid sequences of messages.
type session struct {
	*rand.Rand
	lsn       pg.LSN
	relations []*pglogrepl.RelationMessage
	messages  [][]byte
}

// randomSession returns the messages of a few transactions, the same for the
// same seed.
func randomSession(seed uint64) [][]byte {
	s := &session{Rand: rand.New(rand.NewPCG(seed, 0)), lsn: 1 << 20}
	for range 1 + s.IntN(6) {
		s.transaction()
	}
	return s.messages
}

func (s *session) write(m pglogrepl.Message) { s.messages = append(s.messages, encode(m)) }

func (s *session) transaction() {
	if s.IntN(5) == 0 {
		s.write(logical(false, s.name(), s.text()))
	}
	s.lsn += pg.LSN(1 + s.IntN(1000))
	at := s.lsn
	s.write(begin(at, s.Uint32()))
	if s.IntN(8) == 0 {
		s.write(origin(s.name()))
	}
	for range s.IntN(12) {
		s.change()
	}
	s.lsn += pg.LSN(1 + s.IntN(100))
	s.write(commit(at, s.lsn))
}

func (s *session) change() {
	if len(s.relations) == 0 || s.IntN(6) == 0 {
		s.announce()
	}
	rel := s.relations[s.IntN(len(s.relations))]
	switch s.IntN(8) {
	case 0:
		s.write(update(rel.RelationID, 0, nil, s.tuple(rel)))
	case 1:
		s.write(update(rel.RelationID, "KO"[s.IntN(2)], s.tuple(rel), s.tuple(rel)))
	case 2:
		s.write(deletion(rel.RelationID, "KO"[s.IntN(2)], s.tuple(rel)))
	case 3:
		s.write(truncation(rel.RelationID, s.relations[0].RelationID))
	case 4:
		s.write(logical(true, s.name(), s.text()))
	default:
		s.write(insert(rel.RelationID, s.tuple(rel)))
	}
}

// announce writes a new relation or a known one anew, changed or not.
func (s *session) announce() {
	oid := uint32(20000 + s.IntN(5))
	columns := make([]pg.Column, 1+s.IntN(9))
	for i := range columns {
		columns[i] = pg.Column{Name: fmt.Sprintf("%s%d", s.name(), i), Type: 25, Identity: i == 0}
		switch s.IntN(6) {
		case 0:
			columns[i].Type = uint32(30000 + s.IntN(3))
			s.write(typeOf(columns[i].Type, "", "int4"))
		case 1:
			columns[i].Type = 31000
			s.write(typeOf(31000, s.name(), "mood"))
		}
	}
	rel := relation(oid, s.name(), s.name(), columns...)
	s.write(rel)
	if s.IntN(4) == 0 {
		s.write(rel)
	}
	for i, known := range s.relations {
		if known.RelationID == oid {
			s.relations[i] = rel
			return
		}
	}
	s.relations = append(s.relations, rel)
}

func (s *session) tuple(rel *pglogrepl.RelationMessage) *pglogrepl.TupleData {
	values := make([]any, len(rel.Columns))
	for i := range values {
		switch s.IntN(6) {
		case 0: // NULL
		case 1:
			values[i] = pg.UnchangedToast
		default:
			values[i] = s.text()
		}
	}
	return row(values...)
}

func (s *session) name() string {
	names := []string{"", "outbox", "Groß-Schreibung", "日本語", "a b\"c", "público", "x"}
	return names[s.IntN(len(names))]
}

func (s *session) text() string {
	texts := []string{"", "{}", "42", "zażółć gęślą jaźń", "\x00\xff", strings.Repeat("long ", 300)}
	return texts[s.IntN(len(texts))]
}
