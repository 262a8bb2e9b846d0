package checker

import (
	"crypto/sha256"
	"fmt"
)

// longValue is the size in bytes from which on a value is not kept itself. The ledger and
// each reader keep an event's value; a long run has a million events.
const longValue = 16 << 10

// kept is the kept form of a value: the value, or, of a long value, the beginning,
// the size and the digest. Different values have different forms.
func kept(value string) string {
	if len(value) < longValue {
		return value
	}
	return fmt.Sprintf("%.100q… %d bytes, SHA-256 %x", value, len(value), sha256.Sum256([]byte(value)))
}
