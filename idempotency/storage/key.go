package storage

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxIDBytes bounds Key.ID. DynamoDB's limit for a partition key, 2048 bytes,
// leaves room for the id and the scope.
const MaxIDBytes = 1024

// maxScopeBytes bounds Key.Scope.
const maxScopeBytes = 100

// Key identifies a message for a single consumer. Key is a value; the zero Key
// is not valid.
type Key struct {
	// Scope names the consumer: two reading the same topic each act once. 1 to 100
	// letters, digits, dots, underscores and hyphens.
	Scope string
	// ID names the message within the scope, e.g. the header id. 1 to
	// MaxIDBytes bytes of UTF-8 without NUL.
	ID string
}

// String returns scope/id.
func (k Key) String() string { return k.Scope + "/" + k.ID }

// Validate returns an error wrapping ErrBadKey unless the key can be stored.
func (k Key) Validate() error {
	switch {
	case !validScope(k.Scope):
		return fmt.Errorf("%w: scope %q must be 1 to 100 letters, digits, dots, underscores or hyphens", ErrBadKey, k.Scope)
	case k.ID == "":
		return fmt.Errorf("%w: the id is empty", ErrBadKey)
	case len(k.ID) > MaxIDBytes:
		return fmt.Errorf("%w: the id has %d bytes, more than %d", ErrBadKey, len(k.ID), MaxIDBytes)
	case !utf8.ValidString(k.ID) || strings.ContainsRune(k.ID, 0):
		return fmt.Errorf("%w: the id is not UTF-8 without NUL", ErrBadKey)
	}
	return nil
}

// validScope leaves out the separators of a key's parts in the stores, and the
// braces of Redis Cluster's hash tags.
func validScope(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxScopeBytes
}
