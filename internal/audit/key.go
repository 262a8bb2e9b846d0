package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
)

// Key stands for an event id: a UUID's bytes, or the first half of the SHA-256
// of another text. Two ids with one key are not to be expected: among a
// billion of them the chance is below 10^-20.
type Key [16]byte

// KeyOf returns the key of an event id in the form of the header id.
func KeyOf(id []byte) Key {
	if key, ok := uuid(id); ok {
		return key
	}
	sum := sha256.Sum256(id)
	return Key(sum[:16])
}

// uuid reads PostgreSQL's form of a UUID, in lower case with hyphens. Another
// spelling is another id, as it is for consumers.
func uuid(id []byte) (key Key, ok bool) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return key, false
	}
	for _, c := range id {
		if 'A' <= c && c <= 'F' {
			return key, false
		}
	}
	at := 0
	for _, part := range [...][2]int{{0, 8}, {9, 13}, {14, 18}, {19, 23}, {24, 36}} {
		n, err := hex.Decode(key[at:], id[part[0]:part[1]])
		if err != nil {
			return key, false
		}
		at += n
	}
	return key, true
}

// share is the part of the ids that the key belongs to. UUIDs have random bits
// in different places, or none but a few, so the mixture takes all bits.
func (k Key) share(shares int) int {
	x := binary.LittleEndian.Uint64(k[:8]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(k[8:]), 23)
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return int((x ^ x>>33) % uint64(shares))
}
