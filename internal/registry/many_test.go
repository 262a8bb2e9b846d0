package registry_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
)

// schemaOf is the schema of the nth subject, and of no other.
func schemaOf(format string, n int) sr.Schema {
	switch format {
	case registry.FormatProtobuf:
		return sr.Schema{Type: sr.TypeProtobuf, Schema: fmt.Sprintf(`syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
			message Order%d { int64 id = 1; string note = 2; repeated Line lines = 3; google.protobuf.Timestamp at = 4; message Line { string sku = 1; int32 n = 2; } }`, n)}
	case registry.FormatJSONSchema:
		return sr.Schema{Type: sr.TypeJSON, Schema: fmt.Sprintf(`{"title":"Order%d","type":"object","required":["id"],"properties":{"id":{"type":"integer"},"note":{"type":"string"},
			"lines":{"type":"array","items":{"type":"object","properties":{"sku":{"type":"string"},"n":{"type":"integer"}}}}}}`, n)}
	}
	return sr.Schema{Schema: fmt.Sprintf(`{"type":"record","name":"Order%d","fields":[{"name":"id","type":"long"},{"name":"note","type":["null","string"],"default":null},
		{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"},{"name":"n","type":"int"}]}}}]}`, n)}
}

// Many more subjects than the cache may hold: each is asked for once a turn, and memory stays
// that of cache_size schemas.
func TestManySubjects(t *testing.T) {
	for format, subjects := range map[string]int{registry.FormatAvro: 10_000, registry.FormatProtobuf: 1_000, registry.FormatJSONSchema: 1_000} {
		t.Run(format, func(t *testing.T) {
			const size = 100
			f := start(t)
			f.opts.Value.Format, f.opts.Registry.CacheSize = format, size
			for n := range subjects {
				f.SeedSchema(fmt.Sprintf("t%d-value", n), 1, n+1, schemaOf(format, n))
			}
			e := f.encoder(t)
			through := func(from, to int) {
				for n := from; n < to; n++ {
					ev := event("k", `{"id":7,"lines":[]}`)
					ev.Record.Topic = fmt.Sprintf("t%d", n)
					must.OK(t, encode(t, e, ev))
				}
			}
			none := heap()
			through(0, size)
			full, asked, began := heap(), f.asked.Load(), time.Now()
			through(size, subjects)
			after, took := heap(), time.Since(began)
			if n := f.asked.Load() - asked; n != int32(subjects-size) {
				t.Errorf("%d questions for %d subjects", n, subjects-size)
			}
			each := (full - none) / size
			t.Logf("%d bytes a schema; %d more subjects: %d bytes more, %s each", each, subjects-size, after-full, took/time.Duration(subjects-size))
			if n := e.Known(); n != size || after-full > 1<<20+each*size/2 {
				t.Errorf("%d schemas are kept, and %d bytes more than for the first %d", n, after-full, size)
			}
			asked = f.asked.Load()
			if through(subjects-size, subjects); f.asked.Load() != asked {
				t.Error("schemas of the last subjects are asked for again")
			}
			if each > 64<<10 {
				t.Errorf("a schema takes %d bytes: encoding.registry.cache_size, by default %d, allows for too many", each, registry.DefaultOptions().Registry.CacheSize)
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
