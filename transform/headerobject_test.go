package transform_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// headersRow returns a row with a headers column; nil is NULL.
func headersRow(headers []byte) *pg.Row {
	rel := relation(1, "outbox", "id", "aggregatetype", "aggregateid", "type", "payload", "headers")
	rel.Columns[5].Type = typeOIDs["json"]
	row := insert(rel, "")
	row.Values[5] = pg.Value{Kind: pg.Null}
	if headers != nil {
		row.Values[5] = pg.Value{Kind: pg.Text, Data: headers}
	}
	return row
}

func TestHeadersColumnAllocates(t *testing.T) {
	for _, tt := range []struct {
		name    string
		headers []byte
		want    float64
	}{
		{"NULL", nil, 1},
		{"three headers", []byte(`{"tenant": "a", "tracestate": "x=y", "n": 5}`), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			router, row := newRouter(t, nil), headersRow(tt.headers)
			if n := testing.AllocsPerRun(1000, func() { _, _ = router.Route(row) }); n > tt.want {
				t.Errorf("%v allocations for an event, want %v", n, tt.want)
			}
		})
	}
}

func TestHeadersColumnSharesTheRowsBytes(t *testing.T) {
	data := []byte(`{"tenant": "abc"}`)
	ev := route(t, newRouter(t, nil), headersRow(data))
	if got := ev.Record.Headers[2].Value; string(got) != "abc" || &got[0] != &data[12] {
		t.Errorf("value %q, or it was copied", got)
	}
}

// Names not kept, because they are too many or too long, become headers too.
func TestManyHeaderNames(t *testing.T) {
	router := newRouter(t, nil)
	for i := range 3000 {
		name := fmt.Sprint("name", i, strings.Repeat("x", i%100))
		for range 2 {
			ev := route(t, router, headersRow([]byte(`{"`+name+`": "v"}`)))
			if got := ev.Record.Headers[2].Key; got != name {
				t.Fatalf("header %q, want %q", got, name)
			}
		}
	}
}

// FuzzHeadersColumn compares with encoding/json's tokens.
func FuzzHeadersColumn(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":"b"}`, ` { "a" : 1.5e3 , "b":true,"c" : null } `, `{"a\"\\":"\u00e4\ud83d"}`,
		`{"a":[1]}`, `{"a":{}}`, `{"a":"b"`, `[]`, `"a"`, ``, `{"traceparent":"x"}`, `{"":1}`, "{\"a\":\"\xff\"}", `{"a":"b"}x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		router := newRouter(t, func(c *config.Config) { c.Event.PositionHeaders = false })
		if data == nil {
			data = []byte{}
		}
		ev, err := router.Route(headersRow(data))
		want, ok := modelHeaders(data)
		if ok != (err == nil) {
			t.Fatalf("error %v, want one: %t", err, !ok)
		}
		if !ok {
			want = []kgo.RecordHeader{{Key: "headers", Value: data}}
		}
		got := slices.DeleteFunc(ev.Record.Headers[2:], func(h kgo.RecordHeader) bool { return h.Key == "tracestate" })
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("headers %q, want %q", got, want)
		}
	})
}

// modelHeaders is what a headers column means, without position or tracing
// columns; ok is false for a bad event.
func modelHeaders(data []byte) (headers []kgo.RecordHeader, ok bool) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, false
		}
		name := token.(string)
		if name == "" || name == "id" || name == "eventType" || strings.HasPrefix(name, "cdc-") {
			return nil, false
		}
		h := kgo.RecordHeader{Key: name}
		switch token, _ = decoder.Token(); v := token.(type) {
		case json.Delim:
			return nil, false
		case nil:
		default:
			h.Value = fmt.Append([]byte{}, v)
		}
		if name == "traceparent" || name == "tracestate" {
			continue // the fuzzer does not find a valid traceparent
		}
		headers = append(headers, h)
	}
	_, err := decoder.Token()
	_, end := decoder.Token()
	return headers, err == nil && end == io.EOF
}

func BenchmarkRouteHeaders(b *testing.B) {
	router, row := newRouter(b, nil), headersRow([]byte(`{"tenant": "a", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := router.Route(row); err != nil {
			b.Fatal(err)
		}
	}
}
