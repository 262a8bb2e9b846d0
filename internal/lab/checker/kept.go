package checker

import (
	"crypto/sha256"
	"fmt"
)

// longValue is the size in bytes from which on a value is not kept itself. An event's
// value is kept by the ledger and by each reader; a long run has a million of them.
const longValue = 16 << 10

// kept is what is kept of a value: the value, or, of a long one, the beginning,
// the size and the digest. Two values that differ have two of these.
func kept(value string) string {
	if len(value) < longValue {
		return value
	}
	return fmt.Sprintf("%.100q… %d bytes, SHA-256 %x", value, len(value), sha256.Sum256([]byte(value)))
}
