package wal

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// testTime is when every transaction of the decoder's tests was committed.
var testTime = time.Date(2026, 2, 3, 4, 5, 6, 789_000, time.UTC)

// outboxRelation is the relation of most tests here.
func outboxRelation() *pglogrepl.RelationMessage {
	return relation(16400, "public", "outbox",
		pg.Column{Name: "id", Type: 2950, Identity: true}, pg.Column{Name: "payload", Type: 25})
}

// decodeAll decodes messages and returns the results, as copies.
func decodeAll(t *testing.T, d *decoder, messages ...pglogrepl.Message) []Message {
	t.Helper()
	var out []Message
	for _, m := range messages {
		msg, err := d.decode(encode(m))
		if err != nil {
			t.Fatalf("%s: %v", m.Type(), err)
		}
		if msg != nil {
			c := *msg
			c.Row.Values = append([]pg.Value(nil), msg.Row.Values...)
			out = append(out, c)
		}
	}
	return out
}

func TestDecodeTransaction(t *testing.T) {
	got := decodeAll(t, newDecoder(),
		begin(0x100, 7),
		origin("elsewhere"),
		outboxRelation(),
		insert(16400, row("a", "x")),
		update(16400, 'K', row("a", nil), row("b", pg.UnchangedToast)),
		logical(true, "outbox", "hello"),
		deletion(16400, 'O', row("b", "x")),
		truncation(16400, 16401),
		commit(0x100, 0x130),
	)
	want := []struct {
		kind Kind
		seq  uint32
	}{
		{Insert, 0},
		{Update, 1},
		{LogicalMessage, 2},
		{Delete, 3},
		{Truncate, 4},
		{Commit, 4},
	}
	if len(got) != len(want) {
		t.Fatalf("%d messages; want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		row := got[i].Row
		if got[i].Kind != w.kind || row.Position != (pg.Position{CommitLSN: 0x100, Seq: w.seq}) || row.XID != 7 || !row.CommitTime.Equal(testTime) {
			t.Errorf("message %d: %+v; want kind %d at 0/100.%d of transaction 7", i, got[i], w.kind, w.seq)
		}
		if hasRow := w.kind != LogicalMessage && w.kind != Commit; hasRow != (row.Relation != nil) {
			t.Errorf("message %d: relation %v", i, row.Relation)
		}
	}
	if got[1].Row.Values[1].Kind != pg.UnchangedToast {
		t.Errorf("unchanged value is %+v", got[1].Row.Values[1])
	}
	if m := got[2]; m.Prefix != "outbox" || string(m.Content) != "hello" {
		t.Errorf("logical message %q %q", m.Prefix, m.Content)
	}
	if end := got[5].End; end != 0x130 {
		t.Errorf("transaction ends at %s; want 0/130", end)
	}
}

func TestDecodeRefuses(t *testing.T) {
	open := []pglogrepl.Message{begin(0x100, 7), outboxRelation()}
	for _, tc := range []struct {
		name   string
		before []pglogrepl.Message
		data   []byte
		want   error
	}{
		{"an empty message", nil, nil, errShort},
		{"an unknown message", nil, []byte("?"), errProtocol},
		{"a message cut off", open, encode(insert(16400, row("a", "x")))[:12], errShort},
		{"a value longer than its message", open, []byte("I\x00\x00\x40\x10N\x00\x02t\xff\xff\xff\xff"), errShort},
		{"an insert outside a transaction", nil, encode(insert(16400, row("a", "x"))), errProtocol},
		{"an insert after the commit", append(open, commit(0x100, 0x130)), encode(insert(16400, row("a", "x"))), errProtocol},
		{"a logical message outside a transaction", nil, encode(logical(true, "outbox", "x")), errProtocol},
		{"a commit outside a transaction", nil, encode(commit(0x100, 0x130)), errProtocol},
		{"the commit of another transaction", open, encode(commit(0x200, 0x230)), errProtocol},
		{"a transaction within another", open, encode(begin(0x200, 8)), errProtocol},
		{"an unannounced relation", open, encode(insert(16401, row("a", "x"))), errProtocol},
		{"too few values", open, encode(insert(16400, row("a"))), errProtocol},
		{"too many values", open, encode(insert(16400, row("a", "x", "y"))), errProtocol},
		{"a binary value", open, encode(insert(16400, row("a", pg.ValueKind('b')))), errProtocol},
		{"an old row in an insert", open, []byte("I\x00\x00\x40\x10O\x00\x00"), errProtocol},
		{"an update without a new row", open, []byte("U\x00\x00\x40\x10X\x00\x00"), errProtocol},
		{"a delete with a new row", open, []byte("D\x00\x00\x40\x10N\x00\x00"), errProtocol},
		{"a truncate of nothing", open, encode(truncation()), errProtocol},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDecoder()
			decodeAll(t, d, tc.before...)
			if msg, err := d.decode(tc.data); !errors.Is(err, tc.want) {
				t.Errorf("decode: %+v, %v; want error %q", msg, err, tc.want)
			}
		})
	}
}

// A non-transactional message must not change the state of a transaction.
func TestDecodeNonTransactionalMessages(t *testing.T) {
	var got []string
	for _, m := range decodeAll(t, newDecoder(),
		logical(false, "outbox", "x"),
		begin(0x100, 7), logical(true, "outbox", "y"), commit(0x100, 0x130),
		logical(false, "outbox", "z"),
	) {
		got = append(got, fmt.Sprint(m.Kind, m.NonTransactional, string(m.Content), m.Row.Position, m.Row.XID, m.Row.CommitTime.IsZero()))
	}
	want := []string{
		fmt.Sprint(LogicalMessage, true, "x", pg.Position{CommitLSN: 7}, 0, true),
		fmt.Sprint(LogicalMessage, false, "y", pg.Position{CommitLSN: 0x100}, 7, false),
		fmt.Sprint(Commit, false, "y", pg.Position{CommitLSN: 0x100}, 7, false),
		fmt.Sprint(LogicalMessage, true, "z", pg.Position{CommitLSN: 7}, 0, true),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDecodeMessagesOfOnePrefix(t *testing.T) {
	d := newDecoder()
	d.prefix = "outbox"
	var got []string
	for _, m := range decodeAll(t, d,
		logical(false, "other", "no"),
		begin(0x100, 7),
		logical(true, "other", "no"), logical(true, "outbox", "x"), logical(true, "outboxes", "no"), logical(true, "outbox", "y"),
		commit(0x100, 0x130),
	) {
		if m.Kind == LogicalMessage {
			got = append(got, fmt.Sprint(string(m.Content), m.Row.Position.Seq))
		}
	}
	if want := []string{"x1", "y3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDecodeRelationChanges(t *testing.T) {
	changed := relation(16400, "public", "outbox",
		pg.Column{Name: "id", Type: 2950, Identity: true}, pg.Column{Name: "body", Type: 25})
	d := newDecoder()
	got := decodeAll(t, d,
		begin(1, 1),
		outboxRelation(), insert(16400, row("a", "x")),
		outboxRelation(), insert(16400, row("b", "x")),
		changed, insert(16400, row("c", "x")),
		commit(1, 2),
		begin(3, 2), insert(16400, row("d", "x")), commit(3, 4),
	)
	first, repeated, after, next := got[0].Row.Relation, got[1].Row.Relation, got[2].Row.Relation, got[4].Row.Relation
	if first != repeated {
		t.Error("a repeated announcement changed the relation's pointer")
	}
	if after == first || after.Columns[1].Name != "body" {
		t.Errorf("after the change the relation is %+v", after)
	}
	if next != after {
		t.Error("the relation did not outlast its transaction")
	}
	if first.Columns[1].Name != "payload" {
		t.Error("the change was written into the old relation")
	}
}

func TestDecodeDomainsAsTheirBaseType(t *testing.T) {
	for _, tc := range []struct {
		name     string
		announce []pglogrepl.Message
		want     uint32
	}{
		{"domain over a built-in type", []pglogrepl.Message{typeOf(30000, "", "int4")}, 23},
		{"domain over an array", []pglogrepl.Message{typeOf(30000, "", "_text")}, 1009},
		{"enum", []pglogrepl.Message{typeOf(30000, "public", "mood")}, 30000},
		{"user's type of a built-in name", []pglogrepl.Message{typeOf(30000, "public", "int4")}, 30000},
		{"OID used again", []pglogrepl.Message{typeOf(30000, "", "int4"), typeOf(30000, "public", "mood")}, 30000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDecoder()
			decodeAll(t, d, tc.announce...)
			got := decodeAll(t, d, begin(1, 1), relation(16400, "public", "outbox", pg.Column{Name: "v", Type: 30000}),
				insert(16400, row("1")))
			if typ := got[0].Row.Relation.Columns[0].Type; typ != tc.want {
				t.Errorf("column type %d; want %d", typ, tc.want)
			}
		})
	}
}

// Values are slices of the message's own bytes and end where the value does.
func TestDecodeInPlace(t *testing.T) {
	d := newDecoder()
	decodeAll(t, d, begin(1, 1), outboxRelation())
	data := encode(insert(16400, row("a", "x")))
	msg := must.Get(d.decode(data))(t)
	v := msg.Row.Values[1].Data
	data[len(data)-1] = 'y'
	if string(v) != "y" {
		t.Error("the value is a copy")
	}
	if cap(msg.Row.Values[0].Data) != len("a") {
		t.Error("appending to a value would overwrite what follows it")
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	for _, m := range []pglogrepl.Message{
		insert(16400, row("018f6f0e-7d6c-7cc0-8000-000000000000", "a payload of some length")),
		update(16400, 'K', row("a", nil), row("b", "x")),
		deletion(16400, 'K', row("a", nil)),
		logical(true, "outbox", "hello"),
	} {
		d := newDecoder()
		decodeAll(t, d, begin(1, 1), outboxRelation(), m)
		data := encode(m)
		if n := testing.AllocsPerRun(100, func() { _, _ = d.decode(data) }); n != 0 {
			t.Errorf("%s: %v allocations; want 0", m.Type(), n)
		}
	}
}

func BenchmarkDecodeInsert(b *testing.B) {
	data := encode(insert(16400, row("018f6f0e-7d6c-7cc0-8000-000000000000", "order", "42", "OrderPlaced", string(make([]byte, 500)))))
	b.Run("decoder", func(b *testing.B) {
		d := newDecoder()
		for _, m := range []pglogrepl.Message{begin(1, 1), relation(16400, "public", "outbox",
			pg.Column{Name: "id"}, pg.Column{Name: "aggregatetype"}, pg.Column{Name: "aggregateid"}, pg.Column{Name: "type"}, pg.Column{Name: "payload"})} {
			must.Get(d.decode(encode(m)))(b)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pglogrepl", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := pglogrepl.Parse(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Messages for the connector are told, and not delivered. Where no others were asked for, none
// counts for a position: with and without them, rows have the same numbers.
func TestDecodeNotices(t *testing.T) {
	for name, asked := range map[string]bool{"among others": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			d := newDecoder()
			var told, got []string
			d.notice, d.uncounted = func(content []byte) { told = append(told, string(content)) }, !asked
			for _, m := range decodeAll(t, d,
				logical(false, "cdc-outbox", "no transaction's"),
				begin(0x100, 7), logical(true, "cdc-outbox", "a"), logical(true, "other", "x"), logical(true, "cdc-outbox", "b"), commit(0x100, 0x130),
			) {
				got = append(got, fmt.Sprint(m.Kind, string(m.Content), m.Row.Position.Seq))
			}
			want := []string{fmt.Sprint(LogicalMessage, "x", 1), fmt.Sprint(Commit, "x", 1)}
			if !asked {
				want = []string{fmt.Sprint(Commit, "", 0)}
			}
			if !slices.Equal(got, want) || !slices.Equal(told, []string{"a", "b"}) {
				t.Errorf("got %q, want %q; told %q", got, want, told)
			}
			next := d.next
			if counted := map[bool]uint32{true: 3, false: 0}[asked]; next != counted {
				t.Errorf("%d changes were counted, want %d", next, counted)
			}
		})
	}
}
