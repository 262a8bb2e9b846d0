package validjson_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/validjson"
)

// FuzzReader puts everything read together again: the document without its
// space.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		` { "a\"\\" : [ -1.5e+3 , true,false , null, "\\\\" ], "": {} } `, `"\u00e4"`, `0`, "\t[]\r\n", `[1,"x"`, `"\`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		if !json.Valid(document) {
			return
		}
		var want bytes.Buffer
		if err := json.Compact(&want, document); err != nil {
			t.Fatal(err)
		}
		var got []byte
		for r := validjson.NewReader(document); r.Peek() != 0; {
			switch c := r.Peek(); c {
			case '"':
				got = append(got, r.Text()...)
			case '{', '}', '[', ']', ',', ':':
				got = append(got, c)
				r.Skip()
			default:
				got = append(got, r.Bare()...)
			}
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%q read as %q, want %q", document, got, &want)
		}
	})
}
