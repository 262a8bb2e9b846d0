// Package validjson walks JSON documents known to be valid (encoding/json's
// Valid), without copying and without a tree.
package validjson

import "bytes"

// Reader is at a place in a valid document.
type Reader struct {
	src []byte
	pos int
}

// NewReader returns a reader at the start of src.
func NewReader(src []byte) Reader { return Reader{src: src} }

// Peek passes over space and returns the byte that is next, 0 at the end.
func (r *Reader) Peek() byte {
	for r.pos < len(r.src) {
		switch c := r.src[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

// Skip passes over the byte that Peek returned: a bracket, comma or colon.
func (r *Reader) Skip() { r.pos++ }

// Text reads the string that is next. Text returns a part of the document, with
// quotes and escapes.
func (r *Reader) Text() []byte {
	start := r.pos
	end := start + 1
	for {
		end += bytes.IndexByte(r.src[end:], '"')
		if r.src[end-1] != '\\' || !escaped(r.src[start+1:end]) {
			break
		}
		end++
	}
	r.pos = end + 1
	return r.src[start:r.pos:r.pos]
}

// escaped reports whether s ends in an odd number of backslashes.
func escaped(s []byte) bool {
	return (len(s)-len(bytes.TrimRight(s, `\`)))%2 == 1
}

// Bare reads the number, true, false or null that is next. Bare returns a part
// of the document.
func (r *Reader) Bare() []byte {
	start := r.pos
	for r.pos < len(r.src) && bareByte[r.src[r.pos]] {
		r.pos++
	}
	return r.src[start:r.pos:r.pos]
}

// bareByte are the bytes of numbers, true, false and null.
var bareByte = func() (set [256]bool) {
	for _, c := range []byte("+-.0123456789Eaeflnrstu") {
		set[c] = true
	}
	return set
}()
