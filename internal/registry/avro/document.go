package avro

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/internal/base/validjson"
)

var (
	// ErrNotJSON is the error of a document in another form.
	ErrNotJSON = errors.New("is not valid JSON")
	// ErrNotUTF8 is the error of a document with other bytes.
	ErrNotUTF8 = errors.New("is not valid UTF-8")
)

// node is a value of a document. A container's values are the nodes behind, up to end.
type node struct {
	kind byte   // '{', '[', '"', or the first byte of another value
	text []byte // of a string, with quotes, or of a number, true, false or null
	name []byte // of a member, with quotes
	end  int
}

// document is a JSON document as a list of nodes.
type document struct{ nodes []node }

func (d *document) read(src []byte) error {
	if !json.Valid(src) {
		return ErrNotJSON
	}
	if !utf8.Valid(src) {
		return ErrNotUTF8
	}
	d.nodes = d.nodes[:0]
	r := validjson.NewReader(src)
	d.value(&r, nil)
	return nil
}

func (d *document) value(r *validjson.Reader, name []byte) {
	at := len(d.nodes)
	c := r.Peek()
	d.nodes = append(d.nodes, node{kind: c, name: name})
	switch c {
	case '{', '[':
		r.Skip()
		for n := r.Peek(); n != '}' && n != ']'; n = r.Peek() {
			if n == ',' {
				r.Skip()
				continue
			}
			var member []byte
			if c == '{' {
				member = r.Text()
				r.Peek()
				r.Skip() // the colon
			}
			d.value(r, member)
		}
		r.Skip()
	case '"':
		d.nodes[at].text = r.Text()
	default:
		d.nodes[at].text = r.Bare()
	}
	d.nodes[at].end = len(d.nodes)
}
