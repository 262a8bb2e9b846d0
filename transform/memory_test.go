package transform_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// An event's own count of memory agrees with the heap, beside a row whose bytes
// are there already.
func TestEventMemoryIsWhatTheHeapShows(t *testing.T) {
	payload := []byte(`{"text": "` + strings.Repeat("0123456789", 300) + `"}`)
	bytea := []byte(`\x` + strings.Repeat("0123456789abcdef", 300))
	escaped := []byte(`{"a": "` + strings.Repeat(`\u0041`, 200) + `"}`)
	many := []byte(`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10}`)
	for name, c := range map[string]struct {
		change  func(*config.Config)
		payload []byte
		oid     uint32
		headers []byte
	}{
		"a payload as it is":        {nil, payload, typeOIDs["text"], nil},
		"a payload as a JSON value": {func(c *config.Config) { c.Event.PayloadFormat = transform.FormatJSON }, payload, typeOIDs["text"], nil},
		"an expanded payload":       {func(c *config.Config) { c.Event.PayloadFormat = transform.FormatJSONExpanded }, payload, typeOIDs["jsonb"], nil},
		"an envelope":               {func(c *config.Config) { c.Event.Additional = []string{"type:envelope"} }, payload, typeOIDs["text"], nil},
		"bytes":                     {nil, bytea, typeOIDs["bytea"], nil},
		"many headers":              {nil, []byte("{}"), typeOIDs["text"], many},
		"headers with escapes":      {nil, []byte("{}"), typeOIDs["text"], escaped},
	} {
		t.Run(name, func(t *testing.T) {
			router, row := newRouter(t, c.change), headersRow(c.headers)
			row.Relation.Columns[4].Type = c.oid
			row.Values[4] = pg.Value{Kind: pg.Text, Data: c.payload}
			events := make([]*transform.Event, 5000)
			var counted int64
			before := heap()
			for i := range events {
				events[i] = route(t, router, row)
				counted += events[i].Memory()
			}
			grown := heap() - before
			runtime.KeepAlive(events)
			if counted < grown*8/10 || counted > 2*grown {
				t.Errorf("%d bytes for an event, counted as %d", grown/int64(len(events)), counted/int64(len(events)))
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
