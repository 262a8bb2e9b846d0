package idempotency

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Fingerprint identifies a payload: a version, a colon, and a digest in that
// version's way. Fingerprints of different versions are never equal, so a
// change of method is not mistaken for another payload: stores compare two
// fingerprints only if their versions agree. The empty Fingerprint is compared
// with none.
type Fingerprint string

// FingerprintBytes is version b1: SHA-256 over the payload as it is.
func FingerprintBytes(payload []byte) Fingerprint {
	sum := sha256.Sum256(payload)
	return Fingerprint("b1:" + base64.RawURLEncoding.EncodeToString(sum[:]))
}

// Version returns what stands before the colon.
func (f Fingerprint) Version() string {
	version, _, _ := strings.Cut(string(f), ":")
	return version
}

// Conflicts tells whether the two are of different payloads for sure: both set,
// of one version, and not equal.
func (f Fingerprint) Conflicts(other Fingerprint) bool {
	return f != "" && other != "" && f != other && f.Version() == other.Version()
}
