package shadow

import (
	"bytes"
	"slices"
	"strings"
)

// frame is the length of a zero byte and the number of a schema, before the data.
const frame = 5

// unframed are the data without the number of a schema, if there is one.
func unframed(b []byte, framed bool) []byte {
	if framed && len(b) >= frame && b[0] == 0 {
		return b[frame:]
	}
	return b
}

// ofSchema begins the names of parts that differ in the number of a schema alone.
const ofSchema = "schema's number of the "

// numbered is the name of the part, key or value, if ours and theirs differ.
func numbered(part string, framed bool, ours, theirs []byte) string {
	a, b := unframed(ours, framed), unframed(theirs, framed)
	switch {
	case len(a) == len(ours) || len(b) == len(theirs) || !bytes.Equal(a, b):
		return part
	case bytes.Equal(ours[:frame], make([]byte, frame)): // by a look at a schema to be registered
		return ofSchema + part + ", which is not registered by ours"
	}
	return ofSchema + part
}

// onlyNumbers tells whether the parts are all numbers of schemas.
func onlyNumbers(parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.HasPrefix(part, ofSchema) })
}
