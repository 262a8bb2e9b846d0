package wal

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// FuzzDecode compares the decoder with pglogrepl.Parse on sequences of messages, each
// preceded by the length: messages accepted by both mean the same, and both accept all
// valid messages.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(pack(randomSession(seed)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		compare(t, unpack(data))
	})
}

func TestDecodeAcceptsEveryValidSession(t *testing.T) {
	for seed := range uint64(400) {
		messages := randomSession(seed)
		if n := compare(t, messages); n < len(messages) {
			t.Fatalf("seed %d: message %d of %d refused: %q", seed, n, len(messages), messages[n])
		}
	}
}

// TestDecodeDamagedSessions is the fuzz test for runs without a fuzzer.
func TestDecodeDamagedSessions(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for seed := range uint64(4000) {
		messages := randomSession(seed % 400)
		damaged := messages[random.IntN(len(messages))]
		switch at := random.IntN(len(damaged)); random.IntN(3) {
		case 0:
			damaged[at] ^= byte(1 << random.IntN(8))
		case 1:
			copy(damaged[at:], []byte{0xff, 0xff, 0xff, 0xff})
		case 2:
			i := random.IntN(len(messages))
			messages[i] = messages[i][:random.IntN(len(messages[i]))]
		}
		compare(t, messages)
	}
}

// compare feeds messages to a decoder, up to a refusal, and to the model. It returns how
// many the decoder took.
func compare(t *testing.T, messages [][]byte) (taken int) {
	t.Helper()
	d, model := newDecoder(), newModel()
	for i, data := range messages {
		got, err := d.decode(data)
		parsed, ok := parse(data)
		if err != nil {
			if ok && wellFormed(data, parsed) && model.allows(parsed) {
				t.Fatalf("message %d %q: %v; pglogrepl accepts it as %+v", i, data, err, parsed)
			}
			return i
		}
		if !ok {
			return i // pglogrepl wants eight bytes even of an empty row
		}
		if !model.allows(parsed) {
			t.Fatalf("message %d %q: accepted although not valid here", i, data)
		}
		wantMessage(t, got, model.apply(parsed))
	}
	return len(messages)
}

// parse is pglogrepl.Parse, which panics on some damaged messages.
func parse(data []byte) (m pglogrepl.Message, ok bool) {
	defer func() {
		if recover() != nil {
			m, ok = nil, false
		}
	}()
	if len(data) > 1<<16 || claimsTooMuch(data) {
		return nil, false // pglogrepl allocates as much as a length field says
	}
	m, err := pglogrepl.Parse(data)
	return m, err == nil
}

// claimsTooMuch reports whether a length or count in data exceeds what the
// message can hold.
func claimsTooMuch(data []byte) bool {
	c := cursor{buf: data}
	switch c.byte() {
	case pgoutputTruncate:
		return uint64(c.uint32()) > uint64(len(data))
	case pgoutputInsert, pgoutputUpdate, pgoutputDelete:
		c.uint32()
		for !c.short && len(c.buf) > 0 {
			c.byte()
			for range c.uint16() {
				if kind := c.byte(); kind == 't' || kind == 'b' {
					c.bytes(int(c.uint32()))
				}
			}
		}
		return c.short
	}
	return false
}

// wellFormed reports whether a server would send data for m: pglogrepl overlooks some wrong
// tags and flags.
func wellFormed(data []byte, m pglogrepl.Message) bool {
	for _, t := range tuples(m) {
		for _, c := range t.Columns {
			switch pg.ValueKind(c.DataType) {
			case pg.Null, pg.UnchangedToast, pg.Text:
			default:
				return false
			}
		}
	}
	return bytes.HasPrefix(data, encode(m))
}

func tuples(m pglogrepl.Message) []*pglogrepl.TupleData {
	switch m := m.(type) {
	case *pglogrepl.InsertMessage:
		return []*pglogrepl.TupleData{m.Tuple}
	case *pglogrepl.DeleteMessage:
		return []*pglogrepl.TupleData{m.OldTuple}
	case *pglogrepl.UpdateMessage:
		if m.OldTuple != nil {
			return []*pglogrepl.TupleData{m.NewTuple, m.OldTuple}
		}
		return []*pglogrepl.TupleData{m.NewTuple}
	}
	return nil
}

// model is the decoder's specification in terms of pglogrepl's messages.
type model struct {
	begin     *pglogrepl.BeginMessage // of the open transaction
	seq       uint32
	relations map[uint32]*pg.Relation
	base      map[uint32]uint32
	names     map[uint32]string
	types     *pgtype.Map
}

func newModel() *model {
	return &model{relations: map[uint32]*pg.Relation{}, base: map[uint32]uint32{}, names: map[uint32]string{}, types: pgtype.NewMap()}
}

// allows reports whether m is valid after the messages before.
func (s *model) allows(m pglogrepl.Message) bool {
	fits := func(oid uint32) bool {
		rel := s.relations[oid]
		if s.begin == nil || rel == nil {
			return false
		}
		for _, t := range tuples(m) {
			if int(t.ColumnNum) != len(rel.Columns) {
				return false
			}
		}
		return true
	}
	switch m := m.(type) {
	case *pglogrepl.BeginMessage:
		return s.begin == nil
	case *pglogrepl.CommitMessage:
		return s.begin != nil && m.CommitLSN == s.begin.FinalLSN
	case *pglogrepl.InsertMessage:
		return fits(m.RelationID)
	case *pglogrepl.UpdateMessage:
		return fits(m.RelationID)
	case *pglogrepl.DeleteMessage:
		return fits(m.RelationID)
	case *pglogrepl.TruncateMessage:
		return m.RelationNum > 0 && fits(m.RelationIDs[0])
	case *pglogrepl.LogicalDecodingMessage:
		return !m.Transactional || s.begin != nil
	}
	return true
}

// apply returns the decoder's expected message for m, nil for none.
func (s *model) apply(m pglogrepl.Message) *Message {
	switch m := m.(type) {
	case *pglogrepl.BeginMessage:
		s.begin, s.seq = m, 0
	case *pglogrepl.CommitMessage:
		msg := s.message(Commit, 0, nil)
		msg.Row.Position.Seq = 0
		msg.End = m.TransactionEndLSN
		s.begin = nil
		return msg
	case *pglogrepl.RelationMessage:
		s.relation(m)
	case *pglogrepl.TypeMessage:
		delete(s.base, m.DataType)
		delete(s.names, m.DataType)
		if m.Namespace != "" {
			s.names[m.DataType] = m.Name
		} else if t, ok := s.types.TypeForName(m.Name); ok {
			s.base[m.DataType] = t.OID
		}
	case *pglogrepl.InsertMessage:
		return s.message(Insert, m.RelationID, m.Tuple)
	case *pglogrepl.UpdateMessage:
		return s.message(Update, m.RelationID, m.NewTuple)
	case *pglogrepl.DeleteMessage:
		return s.message(Delete, m.RelationID, m.OldTuple)
	case *pglogrepl.TruncateMessage:
		return s.message(Truncate, m.RelationIDs[0], nil)
	case *pglogrepl.LogicalDecodingMessage:
		msg := &Message{Kind: LogicalMessage, Row: pg.Row{Position: pg.Position{CommitLSN: m.LSN}}}
		if s.begin != nil {
			msg = s.message(LogicalMessage, 0, nil)
		}
		if !m.Transactional && s.begin != nil {
			s.seq-- // no change of the open transaction
		}
		msg.Prefix, msg.Content, msg.NonTransactional = m.Prefix, m.Content, !m.Transactional
		return msg
	}
	return nil
}

func (s *model) relation(m *pglogrepl.RelationMessage) {
	rel := &pg.Relation{OID: m.RelationID, Namespace: m.Namespace, Name: m.RelationName}
	if rel.Namespace == "" {
		rel.Namespace = "pg_catalog"
	}
	for _, c := range m.Columns {
		col := pg.Column{Name: c.Name, Type: c.DataType, TypeName: s.names[c.DataType], Modifier: c.TypeModifier, Identity: c.Flags&1 != 0}
		if base, ok := s.base[c.DataType]; ok {
			col.Type, col.Modifier = base, pg.UnknownModifier
		}
		rel.Columns = append(rel.Columns, col)
	}
	s.relations[rel.OID] = rel
}

// message is the next change of the open transaction.
func (s *model) message(kind Kind, oid uint32, t *pglogrepl.TupleData) *Message {
	msg := &Message{Kind: kind, Row: pg.Row{
		Position:   pg.Position{CommitLSN: s.begin.FinalLSN, Seq: s.seq},
		XID:        s.begin.Xid,
		CommitTime: s.begin.CommitTime,
		Relation:   s.relations[oid],
	}}
	s.seq++
	if t != nil {
		for _, c := range t.Columns {
			msg.Row.Values = append(msg.Row.Values, pg.Value{Kind: pg.ValueKind(c.DataType), Data: c.Data})
		}
	}
	return msg
}

// wantMessage compares the fields a message of the kind has.
func wantMessage(t *testing.T, got, want *Message) {
	t.Helper()
	if (got == nil) != (want == nil) {
		t.Fatalf("message %+v; want %+v", got, want)
	}
	if got == nil {
		return
	}
	if got.Kind != want.Kind || got.Row.XID != want.Row.XID || got.Row.Position.CommitLSN != want.Row.Position.CommitLSN ||
		// pglogrepl's times overflow; their nanoseconds do alike.
		got.Row.CommitTime.UnixNano() != want.Row.CommitTime.UnixNano() {
		t.Fatalf("message %+v; want %+v", got, want)
	}
	if want.Kind == Commit {
		if got.End != want.End {
			t.Fatalf("transaction ends at %s; want %s", got.End, want.End)
		}
		return
	}
	if got.Row.Position.Seq != want.Row.Position.Seq {
		t.Fatalf("change %d of its transaction; want %d", got.Row.Position.Seq, want.Row.Position.Seq)
	}
	if want.Kind == LogicalMessage {
		if got.NonTransactional != want.NonTransactional || got.Prefix != want.Prefix || !bytes.Equal(got.Content, want.Content) {
			t.Fatalf("message %q %q; want %q %q", got.Prefix, got.Content, want.Prefix, want.Content)
		}
		return
	}
	if !same(got.Row.Relation, want.Row.Relation) || got.Row.Relation.OID != want.Row.Relation.OID {
		t.Fatalf("relation %+v; want %+v", got.Row.Relation, want.Row.Relation)
	}
	wantValues(t, got.Row.Values, want.Row.Values)
}

func wantValues(t *testing.T, got, want []pg.Value) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values; want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Kind != want[i].Kind || !bytes.Equal(got[i].Data, want[i].Data) {
			t.Fatalf("value %d is %c %q; want %c %q", i, got[i].Kind, got[i].Data, want[i].Kind, want[i].Data)
		}
	}
}

// pack joins messages into the fuzzer's input form, and unpack undoes it.
func pack(messages [][]byte) []byte {
	var b []byte
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
		b = append(b, m...)
	}
	return b
}

func unpack(b []byte) [][]byte {
	var messages [][]byte
	for len(b) >= 2 {
		n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
		messages = append(messages, b[2:2+n:2+n])
		b = b[2+n:]
	}
	return messages
}
