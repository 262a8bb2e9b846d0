package storage

import "strings"

// Fingerprint identifies a payload: a version, a colon, and the version's
// digest. Fingerprints of different versions are never equal, so a change of
// method is not mistaken for another payload: stores compare two fingerprints
// only if their versions agree. The empty Fingerprint is compared with none.
type Fingerprint string

// Version returns the part before the colon.
func (f Fingerprint) Version() string {
	version, _, _ := strings.Cut(string(f), ":")
	return version
}

// Conflicts tells whether the two are of different payloads for sure: both set,
// of the same version, and not equal.
func (f Fingerprint) Conflicts(other Fingerprint) bool {
	return f != "" && other != "" && f != other && f.Version() == other.Version()
}
