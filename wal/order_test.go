package wal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// step is a message of the decoder at the position in the log.
type step struct {
	at  pg.LSN
	msg Message
}

// transaction makes the random changes of a transaction, in the order written; a message is
// at the position of the next row.
func transaction(random *rand.Rand, at pg.LSN) (steps []step) {
	id := 0
	add := func(kind Kind) {
		msg := Message{Kind: kind, Content: fmt.Append(nil, id)}
		if kind != LogicalMessage {
			msg.Row.Values = []pg.Value{{Kind: pg.Text, Data: msg.Content}}
		}
		steps = append(steps, step{at, msg})
		id++
	}
	for range random.IntN(12) {
		switch random.IntN(4) {
		case 0: // a message, and perhaps a row right behind it
			at += 8
			add(LogicalMessage)
			continue
		case 1: // rows of a single record
			for range random.IntN(3) {
				add(Insert)
			}
		}
		add([]Kind{Insert, Insert, Update, Delete, Truncate}[random.IntN(5)])
		at += 8
	}
	return append(steps, step{at + 8, Message{Kind: Commit}})
}

// confuse does as the server does: it takes a message for later than the row at the
// position, or than some of its rows, and numbers all.
func confuse(random *rand.Rand, steps []step) []step {
	out := slices.Clone(steps)
	for i := len(out) - 2; i >= 0; i-- {
		for j := i; out[j].msg.Kind == LogicalMessage && out[j+1].at == out[j].at && out[j+1].msg.Kind <= Truncate && random.IntN(3) > 0; j++ {
			out[j], out[j+1] = out[j+1], out[j]
		}
	}
	for i := range out {
		out[i].msg.Row.Position.Seq = uint32(i)
	}
	return out
}

// Messages come out in the order written, with numbers in the same order. A message stays
// valid until the next call. Chunks are given back.
func TestSequencerRestoresTheOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := &sequencer{}
	chunk := &Chunk{pool: newChunkPool()}
	chunk.Retain()
	confused := 0
	for n := range 20_000 {
		written := transaction(random, pg.LSN(1000*n))
		var got []string
		show := func(m *Message) {
			text := string(m.Content)
			if m.Kind <= Truncate {
				text = string(m.Row.Values[0].Data)
			}
			got = append(got, fmt.Sprint(m.Kind, text, "/", m.Row.Position.Seq))
		}
		drain := func() {
			for msg := s.deliver(); msg != nil; msg = s.deliver() {
				show(msg)
			}
		}
		sent := confuse(random, written)
		if !slices.EqualFunc(sent, written, func(a, b step) bool { return string(a.msg.Content) == string(b.msg.Content) }) {
			confused++
		}
		for i := range sent {
			drain()
			reused := sent[i].msg // as the decoder's
			reused.Chunk = chunk
			if msg := s.take(&reused, sent[i].at); msg != nil {
				show(msg)
			}
			drain()
			reused = Message{}
		}
		var want []string
		for i, st := range written {
			want = append(want, fmt.Sprint(st.msg.Kind, string(st.msg.Content), "/", i))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("transaction %d\ngot  %v\nwant %v", n, got, want)
		}
		if refs := chunk.refs.Load(); refs != 1 {
			t.Fatalf("transaction %d: %d references to the chunk are left, want 1", n, refs)
		}
	}
	if confused < 1000 {
		t.Errorf("only %d transactions were confused", confused)
	}
}

func TestSequencerAllocates(t *testing.T) {
	s := &sequencer{}
	row := Message{Kind: Insert, Row: pg.Row{Values: make([]pg.Value, 5)}}
	commit := Message{Kind: Commit}
	if n := testing.AllocsPerRun(1000, func() {
		for i := range 10 {
			s.take(&row, pg.LSN(i))
			s.deliver()
		}
		s.take(&commit, 20)
		for s.deliver() != nil {
		}
	}); n > 0 {
		t.Errorf("%v allocations for ten rows", n)
	}
}

// The server itself: messages and rows in and out of savepoints.
func TestStreamKeepsMessagesAndRowsInOrder(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	r := s.open(t, 0)
	random := rand.New(rand.NewPCG(3, 4))
	var want []string
	id := 0
	write := func() string {
		id++
		switch random.IntN(5) {
		case 0: // a record of several rows
			from := id
			id += 2
			for n := from; n <= id; n++ {
				want = append(want, fmt.Sprintf("insert public.t id=%d", n))
			}
			return fmt.Sprintf("COPY_%d", from)
		case 1, 2:
			want = append(want, fmt.Sprintf("insert public.t id=%d", id))
			return fmt.Sprintf("INSERT INTO t VALUES (%d)", id)
		}
		want = append(want, fmt.Sprintf("message outbox %d", id))
		return fmt.Sprintf("SELECT pg_logical_emit_message(true, 'outbox', '%d')", id)
	}
	for range 100 {
		s.exec(t, "BEGIN")
		for range 1 + random.IntN(8) {
			statement := write()
			savepoint := random.IntN(2) == 0
			if savepoint {
				s.exec(t, "SAVEPOINT s")
			}
			if number, ok := strings.CutPrefix(statement, "COPY_"); ok {
				s.copyThree(t, number)
			} else {
				s.exec(t, statement)
			}
			if savepoint {
				s.exec(t, "RELEASE s")
			}
		}
		s.exec(t, "COMMIT")
		want = append(want, "commit")
	}
	got := r.all(t, s)
	wantPositions(t, got)
	if lines := lines(got); !slices.Equal(lines, want) {
		for i := range want {
			if i >= len(lines) || lines[i] != want[i] {
				t.Fatalf("message %d of %d is out of order:\n%q, want\n%q", i, len(lines), lines[i:min(len(lines), i+4)], want[i:min(len(want), i+4)])
			}
		}
	}
	r.close(t)
}

// copyThree writes three rows by COPY, as a single record.
func (s *source) copyThree(t *testing.T, from string) {
	t.Helper()
	var first int
	must.Get(fmt.Sscan(from, &first))(t)
	rows := fmt.Sprintf("%d\n%d\n%d\n", first, first+1, first+2)
	must.Get(s.sql.PgConn().CopyFrom(pgtest.Context(t), strings.NewReader(rows), "COPY t FROM STDIN"))(t)
}
