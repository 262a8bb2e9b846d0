package envelope_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vector is an entry of testdata/vectors.yaml.
type vector struct {
	Name          string
	SQL           *bool
	ID            *string
	AggregateType *string
	AggregateID   *string
	Type          *string
	Payload       *string
	Headers       *string
	Binary        *string
	Wire          string
}

func (v *vector) message(t testing.TB) *envelope.Message {
	m := &envelope.Message{
		ID:            optional(v.ID),
		AggregateType: optional(v.AggregateType),
		AggregateID:   optional(v.AggregateID),
		Type:          optional(v.Type),
		Payload:       optional(v.Payload),
		Headers:       optional(v.Headers),
	}
	if v.Binary != nil {
		m.Binary, m.Payload = true, fromHex(t, *v.Binary)
	}
	return m
}

func optional(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var vectors []vector
	if err := decoder.Decode(&vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

func TestVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			want, wire := v.message(t), fromHex(t, v.Wire)
			got, err := envelope.Encode(want)
			if err != nil || !bytes.Equal(got, wire) {
				t.Errorf("encoded, %v:\n%x\nwant:\n%x", err, got, wire)
			}
			if cap(got) != len(got) || want.Size() != len(wire) {
				t.Errorf("Size = %d, capacity %d for %d bytes", want.Size(), cap(got), len(wire))
			}
			var m envelope.Message
			if err := m.Decode(wire); err != nil || !reflect.DeepEqual(&m, want) {
				t.Errorf("decoded %+v, %v, want %+v", m, err, want)
			}
		})
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	got, err := (&envelope.Message{}).Append([]byte("before"))
	if err != nil || !bytes.HasPrefix(got, []byte("before\x01\xff")) {
		t.Errorf("Append = %q, %v", got, err)
	}
}

func whole(t testing.TB) []byte {
	t.Helper()
	content, err := envelope.Encode(&envelope.Message{
		ID:            []byte("id"),
		AggregateType: []byte("order"),
		AggregateID:   []byte("1"),
		Type:          []byte("Placed"),
		Payload:       []byte("{}"),
		Headers:       []byte("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestDecodeRefuses(t *testing.T) {
	valid := whole(t)
	with := func(offset int, length int32) []byte {
		content := bytes.Clone(valid)
		binary.BigEndian.PutUint32(content[offset:], uint32(length))
		return content
	}
	for _, tt := range []struct {
		name    string
		content []byte
		want    error
	}{
		{"nothing", nil, envelope.ErrTruncated},
		{"format 0", []byte{0}, envelope.ErrFormat},
		{"format 3", append([]byte{3}, valid[1:]...), envelope.ErrFormat},
		{"text", []byte("hello"), envelope.ErrFormat},
		{"format alone", valid[:1], envelope.ErrTruncated},
		{"one byte less", valid[:len(valid)-1], envelope.ErrTruncated},
		{"one byte more", append(bytes.Clone(valid), 0), envelope.ErrTrailing},
		{"length -2", with(1, -2), envelope.ErrLength},
		{"smallest length", with(1, -1<<31), envelope.ErrLength},
		{"largest length", with(1, 1<<31-1), envelope.ErrTruncated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m envelope.Message
			if err := m.Decode(tt.content); !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
	for n := range valid {
		var m envelope.Message
		if err := m.Decode(valid[:n]); !errors.Is(err, envelope.ErrTruncated) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

// Fields before the wrong field may tell an operator the event.
func TestDecodeKeepsFieldsBeforeAnError(t *testing.T) {
	m := envelope.Message{Headers: []byte("of an event before")}
	valid := whole(t)
	if err := m.Decode(valid[:len(valid)-1]); err == nil || string(m.ID) != "id" || m.Headers != nil {
		t.Errorf("%v, %+v", err, m)
	}
}

func TestDecodeCopiesNothing(t *testing.T) {
	content := whole(t)
	var m envelope.Message
	if n := testing.AllocsPerRun(100, func() { _ = m.Decode(content) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if &m.Payload[0] != &content[bytes.Index(content, []byte("{}"))] {
		t.Error("the payload was copied")
	}
	if cap(m.Payload) != len(m.Payload) {
		t.Error("appending to a field would overwrite the next one")
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(fromHex(f, v.Wire))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var m envelope.Message
		if m.Decode(content) != nil {
			return
		}
		if again, err := envelope.Encode(&m); err != nil || !bytes.Equal(again, content) {
			t.Errorf("%x is encoded again as %x, %v", content, again, err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	content := whole(b)
	b.ReportAllocs()
	var m envelope.Message
	for b.Loop() {
		if err := m.Decode(content); err != nil {
			b.Fatal(err)
		}
	}
}
