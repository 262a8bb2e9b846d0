package shadow

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// numberedAs gives value and key the number of a schema.
func numberedAs(value, key string, number byte) func(*kgo.Record) {
	return func(r *kgo.Record) {
		r.Value, r.Key = append([]byte{0, 0, 0, 0, number}, value...), append([]byte{0, 0, 0, 0, 1}, key...)
	}
}

// Another number of a schema is a class of its own, and nothing else may hide in it.
func TestNumbersOfSchemas(t *testing.T) {
	for name, tt := range map[string]struct {
		opts         Options
		here, there  func(*kgo.Record)
		want, differ string
	}{
		"the same":           {Options{}, numberedAs("v", "k", 7), numberedAs("v", "k", 7), "ours 1, theirs 1, equal 1", ""},
		"another number":     {Options{}, numberedAs("v", "k", 7), numberedAs("v", "k", 8), "ours 1, theirs 1, renumbered 1", "schema's number of the value"},
		"by content":         {Options{ByContent: true}, numberedAs("v", "k", 7), numberedAs("v", "k", 8), "ours 1, theirs 1, renumbered 1", "schema's number of the value"},
		"not registered":     {Options{}, numberedAs("v", "k", 0), numberedAs("v", "k", 8), "ours 1, theirs 1, renumbered 1", "schema's number of the value, which is not registered by ours"},
		"other data":         {Options{}, numberedAs("v", "k", 7), numberedAs("w", "k", 8), "ours 1, theirs 1, different 1", "value"},
		"a header, too":      {Options{}, numberedAs("v", "k", 7), func(r *kgo.Record) { numberedAs("v", "k", 8)(r); r.Headers = r.Headers[:1] }, "ours 1, theirs 1, different 1", "header type; schema's number of the value"},
		"no number there":    {Options{}, numberedAs("v", "k", 7), func(r *kgo.Record) { numberedAs("v", "k", 7)(r); r.Value = []byte("v") }, "ours 1, theirs 1, different 1", "value"},
		"null there":         {Options{}, numberedAs("", "k", 7), func(r *kgo.Record) { numberedAs("", "k", 7)(r); r.Value = nil }, "ours 1, theirs 1, different 1", "value"},
		"data without one":   {Options{}, func(r *kgo.Record) { numberedAs("v", "k", 7)(r); r.Value = []byte("abcdef") }, func(r *kgo.Record) { numberedAs("v", "k", 7)(r); r.Value = []byte("zbcdef") }, "ours 1, theirs 1, different 1", "value"},
		"no format of ours":  {Options{FramedKeys: true}, numberedAs("v", "k", 7), numberedAs("v", "k", 8), "ours 1, theirs 1, different 1", "value"},
		"the number of keys": {Options{}, numberedAs("v", "k", 7), func(r *kgo.Record) { numberedAs("v", "k", 7)(r); r.Key[4] = 2 }, "ours 1, theirs 1, renumbered 1", "schema's number of the key"},
	} {
		t.Run(name, func(t *testing.T) {
			if !tt.opts.FramedKeys {
				tt.opts.FramedKeys, tt.opts.FramedValues = true, true
			}
			c := begun(tt.opts, 1)
			event := ours(1, tt.here, func(r *kgo.Record) { r.Partition = 0 })
			c.Ours(event)
			c.Theirs(theirs(1, 0, tt.there, func(r *kgo.Record) { r.Partition = 0 }))
			r := c.Report()
			parts := ""
			for i, p := range r.Parts {
				if i > 0 {
					parts += "; "
				}
				parts += p.Part
			}
			if got := counts(r); got != tt.want || parts != tt.differ || int(r.Differences()) != len(r.Examples) {
				t.Errorf("%s; %q; %d examples, want %s; %q", got, parts, len(r.Examples), tt.want, tt.differ)
			}
		})
	}
}
